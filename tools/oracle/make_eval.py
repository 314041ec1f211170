"""Fixtures of tasks: what lm-evaluation-harness computes for tests/fixtures/eval/*.toml with a model that is a formula.
The C++ tests ask the same formula and must write the same lines.

  build/release/ingot eval --export-harness DIR --tasks tests/fixtures/eval/words.toml,...
  tools/oracle/make_eval.py DIR tests/fixtures/eval        (needs lm_eval 0.4.13)
"""

import json
import sys
from pathlib import Path

from lm_eval import simple_evaluate
from lm_eval.api.model import TemplateLM
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, handle_non_serializable, make_disjoint_window, sanitize_list


class Formula(TemplateLM):
    """Ids are bytes; a text costs what its bytes and their neighbours say; an answer counts the prompt's bytes."""

    backend = "causal"
    length = 64

    @property
    def eot_token_id(self):
        return 0

    def tok_encode(self, string, **kwargs):
        return list(string.encode())

    def _loglikelihood_tokens(self, requests, **kwargs):
        result = []
        for _, context, continuation in requests:
            ids, total, greedy = context + continuation, 0.0, True
            for i in range(len(context), len(ids)):
                cost = (ids[i] * 7 + ids[i - 1] * 3 + len(context)) % 29
                total -= cost / 8
                greedy = greedy and cost < 26
            result.append((total, greedy))
        return result

    def loglikelihood_rolling(self, requests, **kwargs):
        sums = []
        for (text,) in [r.args for r in requests]:
            windows = get_rolling_token_windows(self.tok_encode(text), 0, self.length - 1, 1)
            sums.append(sum(x[0] for x in self._loglikelihood_tokens([(None, *make_disjoint_window(w)) for w in windows])))
        return sums

    def generate_until(self, requests, **kwargs):
        sums = [sum(r.args[0].encode()) for r in requests]
        return [f" Let me see: {s % 7}, so #### {s % 5}." if s % 6 else " I do not know" for s in sums]


def main():
    tasks, out = Path(sys.argv[1]), Path(sys.argv[2])
    names = sorted(p.stem for p in tasks.glob("*.yaml"))
    results = simple_evaluate(model=Formula(), tasks=names, task_manager=TaskManager(include_path=str(tasks)), log_samples=True)
    lines = {}
    for name, samples in results["samples"].items():
        for s in samples:  # as the harness's tracker writes them
            s["arguments"] = {f"gen_args_{i}": {f"arg_{j}": a for j, a in enumerate(args)} for i, args in enumerate(s["arguments"])}
            s["resps"], s["filtered_resps"] = sanitize_list(s["resps"]), sanitize_list(s["filtered_resps"])
            s["target"] = str(s["target"])
            lines.setdefault(name, []).append(json.dumps(s, default=handle_non_serializable, ensure_ascii=False))
    text = {"results": results["results"], "samples": lines}
    (out / "harness.json").write_text(json.dumps(text, indent=1, ensure_ascii=False, default=handle_non_serializable) + "\n")


main()
