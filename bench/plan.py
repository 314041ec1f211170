#!/usr/bin/env python3
"""How well plans know this machine: predicted beside measured steps of one, two and four ranks.

A round measures a cluster file for each number of ranks (ingot bench cluster --run) on models of other widths, depths, lengths and batches than
the cases have, and plans every case. Each trains before that and after it, since neighbours make a machine slower for minutes. Printed are
predicted over measured steps (the mean of both): the median of the rounds, and their range. Steps that count come after the first ones, which
allocate; a router's after it has balanced. Documents are longer than sequences, so plans need not be told of them. Layouts of one model whose
measured steps differ by more than a tenth must be in the order that was predicted. Needs an idle machine; a round of all cases takes about twenty
minutes.

With --checkpoints each case trains once more and saves every other step: printed too are how long a save stops training and how long it
writes.

usage: bench/plan.py build/release/ingot [CASE...] [--rounds 3] [--steps 11] [--checkpoints] [--keep FOLDER] [--json FILE]
       CASE: as "dense-copies-2" or "zaya"; default: all"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from parallel import MPI

ROOT = pathlib.Path(__file__).resolve().parent.parent
DENSE, MIXTURE, SAVE = 0.05, 0.10, 0.20  # how far a prediction may be off
SAVES = {"pause": "checkpoint pause", "write": "checkpoint write"}  # as run.json names them

# name: preset, fields of the model, tokens of a sequence, sequences of a batch, of a micro-batch
CALIBRATION = {
    "gpt": ("gpt-10m", {"width": 512, "heads": 8, "kv_heads": 8, "head_width": 64, "hidden": 2048, "layers": 3, "context": 512}, 384, 8, 2),
    "llama": ("llama-small", {"width": 384, "heads": 6, "kv_heads": 3, "head_width": 64, "hidden": 1024, "layers": 3}, 192, 16, 4),
    "moe": ("moe-small", {"width": 320, "heads": 5, "kv_heads": 5, "head_width": 64, "moe.hidden": 448, "layers": 3}, 320, 8, 2),
    "zaya": ("zaya-small", {"layers": 3}, 192, 16, 4),
}
TARGETS = {
    "gpt": ("gpt-10m", {}, 256, 16, 4),
    "llama": ("llama-small", {}, 256, 16, 4),
    "moe": ("moe-small", {}, 256, 16, 4),
    "zaya": ("zaya-mini", {}, 256, 16, 4),
}
# Further passes before steps count.
WARM_UP = {"gpt": 2, "llama": 2, "moe": 12, "zaya": 12}


@dataclasses.dataclass
class Case:
    model: str
    ranks: int
    fields: list
    bar: float


CASES = {
    "dense": Case("gpt", 1, [], DENSE),
    "dense-adamw": Case("gpt", 1, ["--optimizer.matrices=adamw"], DENSE),
    "llama": Case("llama", 1, [], DENSE),
    "moe": Case("moe", 1, [], MIXTURE),
    "zaya": Case("zaya", 1, [], MIXTURE),
    "dense-copies-2": Case("gpt", 2, [], DENSE),
    "dense-tensor-2": Case("gpt", 2, ["--parallel.tensor=2"], DENSE),
    "dense-stages-2": Case("gpt", 2, ["--parallel.pipeline=2"], DENSE),
    "dense-sharding-2": Case("gpt", 2, ["--parallel.shard=full"], MIXTURE),
    "moe-experts-2": Case("moe", 2, ["--parallel.expert=2"], MIXTURE),
    "moe-copies-2": Case("moe", 2, [], MIXTURE),
    "moe-tensor-2": Case("moe", 2, ["--parallel.tensor=2"], MIXTURE),
    "zaya-experts-2": Case("zaya", 2, ["--parallel.expert=2"], MIXTURE),
    "zaya-stages-2": Case("zaya", 2, ["--parallel.pipeline=2"], MIXTURE),
    "dense-copies-4": Case("gpt", 4, [], DENSE),
    "moe-copies-4": Case("moe", 4, [], MIXTURE),
    "moe-experts-4": Case("moe", 4, ["--parallel.expert=4"], MIXTURE),
    "moe-experts-tensor-4": Case("moe", 4, ["--parallel.expert=2", "--parallel.tensor=2"], MIXTURE),
    "moe-stages-experts-4": Case("moe", 4, ["--parallel.pipeline=2", "--parallel.expert=2"], MIXTURE),
    "zaya-sharding-4": Case("zaya", 4, ["--parallel.shard=full", "--phases.0.micro_batch=2"], MIXTURE),
}
SMALL = {"layers": 2, "width": 32, "hidden": 64, "heads": 2, "kv_heads": 2, "head_width": 16, "context": 64}
SMALL_MIXTURE = {"moe.experts": 4, "moe.hidden": 32}


class Bench:
    def __init__(self, ingot, folder, steps, small):
        self.ingot, self.folder, self.steps, self.small = ingot, pathlib.Path(folder), steps, small
        texts = [page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))]
        (self.folder / "text").mkdir(parents=True, exist_ok=True)
        for i, text in enumerate(texts):
            (self.folder / "text" / f"{i}.txt").write_text(text)

    def call(self, *words, ranks=1):
        if ranks > 1:
            words = ["launch", "-n", str(ranks), "--", *words]
        threads = max(1, os.cpu_count() // ranks)
        environment = dict(os.environ, **MPI, INGOT_THREADS=str(threads), MALLOC_MMAP_THRESHOLD_="131072", MALLOC_TRIM_THRESHOLD_="131072")
        done = subprocess.run([self.ingot, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        if done.returncode:
            sys.exit(f"{self.ingot} {' '.join(words)}\n{done.stdout[-2000:]}")
        return done.stdout

    def recipe(self, name, vocabulary, model, warm_up):
        """A recipe in the folder, of a model as CALIBRATION and TARGETS have it."""
        preset, fields, length, batch, micro_batch = model
        if self.small:
            fields, length = SMALL | (SMALL_MIXTURE if "moe" in preset else {}), 16
        keys = "\n".join(f"{key} = {value}" for key, value in fields.items())
        path = self.folder / f"{name}.toml"
        path.write_text(f"""[run]
folder = "{self.folder}/runs/{name}"
precision = "bf16"
[model]
preset = "{preset}"
{keys}
[tokenizer]
vocab = {vocabulary}
[data]
folder = "{self.folder}/data{vocabulary}"
[[data.sources]]
name = "manual"
path = "{self.folder}/text/*.txt"
documents = "whole_file"
validation_fraction = 0.1
[[phases]]
steps = {self.steps + warm_up}
batch = {batch}
micro_batch = {micro_batch}
sequence = {length}
lr = 1e-3
warmup = 0
[evaluation]
every = 0
[samples]
prompts = []
[checkpoint]
every = 0
""")
        return str(path)

    def calibrate(self, ranks):
        cluster = str(self.folder / f"cluster{ranks}.toml")
        models = {name: model for name, model in CALIBRATION.items() if not self.small or name in ("gpt", "moe")}
        runs = [self.recipe(f"calibrate-{name}", 1024, model, 0) for name, model in models.items()]
        quick = ["--sizes=32,64", "--depths=64", "--lengths=32", "--vocab=64", "--trials=1", "--seconds=1e-4", "--comm-seconds=1e-3", "--largest=64KiB",
                 "--file=1MiB", "--io-seconds=0.01", "--steps=1"]
        self.call("bench", "cluster", "--out", cluster, *(quick if self.small else []), *itertools.chain(*(["--run", run] for run in runs)), ranks=ranks)
        return cluster

    def predicted(self, case, cluster):
        """Seconds of a step, of a save's pause and of its writing."""
        plan = self.folder / "plan.json"
        recipe = self.recipe(case.model, 2048, TARGETS[case.model], WARM_UP[case.model])
        self.call("plan", recipe, *case.fields, f"--ranks={case.ranks}", f"--cluster={cluster}", "--budget", f"--json={plan}")
        found = json.loads(plan.read_text())
        return {"step": found["time"]["step_seconds"]} | {save: found["budget"][f"checkpoint_{save}_seconds"] for save in SAVES}

    def trained(self, case, *fields):
        """The rows of a run's metrics, without its first steps, and what run.json says that was measured."""
        recipe = self.recipe(case.model, 2048, TARGETS[case.model], WARM_UP[case.model])
        run = self.folder / "runs" / case.model
        self.call("run", recipe, *case.fields, *fields, "--parallel.self_test=", ranks=case.ranks)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        record = json.loads((run / "run.json").read_text())
        shutil.rmtree(run)
        return rows[WARM_UP[case.model]:], {p["what"]: p.get("measured") for p in record["starts"][-1]["predictions"]}

    def measured(self, case, checkpoints):
        """As predicted() has them; without checkpoints the step alone."""
        took = {"step": statistics.median(row["step_seconds"] for row in self.trained(case)[0])}
        found = self.trained(case, "--checkpoint.every=2")[1] if checkpoints else {}
        return took | {save: found[what] for save, what in SAVES.items() if checkpoints}


def misordered(cases, predicted, measured):
    """Pairs of layouts of one model, more than a tenth apart, whose order was predicted wrongly."""
    wrong = []
    for a, b in itertools.permutations(cases, 2):
        same = CASES[a].model == CASES[b].model and CASES[a].ranks == CASES[b].ranks and "adamw" not in a + b
        if same and measured[a] > 1.1 * measured[b] and predicted[a] <= predicted[b]:
            wrong.append(f"{a} is slower than {b}")
    return wrong


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("ingot", type=lambda path: str(pathlib.Path(path).resolve()))
    p.add_argument("cases", nargs="*", metavar="case", help=f"{', '.join(CASES)}; default: all")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=11)
    p.add_argument("--checkpoints", action="store_true", help="saves too: how long they stop training, and write")
    p.add_argument("--keep", help="a folder for cluster files and recipes, which is kept")
    p.add_argument("--small", action="store_true", help="models that measure nothing: does it run? Not for zaya")
    p.add_argument("--json", help="write the numbers to this file too")
    o = p.parse_args()
    if unknown := set(o.cases) - set(CASES):
        p.error(f"unknown: {' '.join(unknown)}; there are {' '.join(CASES)}")
    cases = o.cases or list(CASES)
    seconds = {}
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(o.ingot, o.keep or temporary, o.steps, o.small)
        for _ in range(o.rounds):
            for ranks in sorted({CASES[name].ranks for name in cases}):
                names = [name for name in cases if CASES[name].ranks == ranks]
                before = {name: bench.measured(CASES[name], o.checkpoints) for name in names}
                cluster = bench.calibrate(ranks)
                for name in names:
                    predicted = bench.predicted(CASES[name], cluster)
                    for what, took in bench.measured(CASES[name], o.checkpoints).items():
                        took = statistics.mean((before[name][what], took))
                        key, bar = (name, CASES[name].bar) if what == "step" else (f"{name}, {what}", SAVE)
                        s = seconds.setdefault(key, {"predicted": [], "measured": [], "bar": bar})
                        s["predicted"].append(predicted[what])
                        s["measured"].append(took)
                        print(f"  {name}, {what}: {predicted[what] / took:.3f} of {1e3 * took:.4g} ms", flush=True)
    print(f"{'predicted over measured':<30}{'median':>8}{'least':>8}{'most':>8}{'may be off by':>16}")
    for name, s in seconds.items():
        ratios = [a / b for a, b in zip(s["predicted"], s["measured"])]
        s["ratio"] = statistics.median(ratios)
        print(f"{name:<30}{s['ratio']:>8.3f}{min(ratios):>8.3f}{max(ratios):>8.3f}{s['bar']:>16.0%}")
    medians = [{name: statistics.median(seconds[name][key]) for name in cases} for key in ("predicted", "measured")]
    for line in misordered(cases, *medians):
        print(f"order: {line}, which the plan did not say")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps({"format": 1, "cores": os.cpu_count(), "cases": seconds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
