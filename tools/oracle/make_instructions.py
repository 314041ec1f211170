"""tests/fixtures/eval/instructions.json: verdicts of IFEval's checkers (lm_eval 0.4.13) on made-up answers.

  tools/oracle/make_instructions.py tests/fixtures/eval

Checks that need a language detector or nltk's data are left out; docs/evaluate.md says how ours differ.
"""

import json
import random
import sys
import types
from pathlib import Path
from unittest import mock

for name in ("langdetect", "immutabledict", "nltk"):  # what the checkers below do not use
    sys.modules[name] = mock.MagicMock()
sys.modules["nltk"].__version__ = "3.9.1"

from lm_eval.tasks.ifeval import instructions_registry, instructions_util, utils  # noqa: E402

import re  # noqa: E402

instructions_util.nltk.tokenize.RegexpTokenizer = lambda p: types.SimpleNamespace(tokenize=lambda t: re.findall(p, t))

PIECES = ["river", "Stone light", "\n", "\n\n", "* a point", "\n* another, with words", "- dash", "***", "******", "<<A title>>",
          "<< >>", '"quoted"', "P.S. more", "p.p.s later", "[name]", "[a] [b]", "*loud*", "**louder**", "Section 1", "SECTION 2",
          '{"a": 1}', "```json\n[1, 2]\n```", "My answer is yes.", "That is all.", "ALL CAPS", "über café", " ", ".", ", ", "Write about a river"]
R = ("less than", "at least")
KINDS = [
    ("keywords:existence", lambda r: {"keywords": r.sample(["river", "stone", "light", "all", "caf."], 2)}),
    ("keywords:forbidden_words", lambda r: {"forbidden_words": r.sample(["river", "stone", "all", "point"], 2)}),
    ("keywords:frequency", lambda r: {"keyword": r.choice(["river", " a", "point"]), "frequency": r.randrange(1, 4), "relation": r.choice(R)}),
    ("keywords:letter_frequency", lambda r: {"letter": r.choice("aEtq"), "let_frequency": r.randrange(1, 9), "let_relation": r.choice(R)}),
    ("length_constraints:number_words", lambda r: {"num_words": r.randrange(1, 15), "relation": r.choice(R)}),
    ("length_constraints:number_paragraphs", lambda r: {"num_paragraphs": r.randrange(1, 4)}),
    ("length_constraints:nth_paragraph_first_word", lambda r: {"num_paragraphs": (n := r.randrange(1, 4)), "nth_paragraph": r.randrange(1, n + 1), "first_word": r.choice(["river", "stone", "p", "quoted"])}),
    ("detectable_content:number_placeholders", lambda r: {"num_placeholders": r.randrange(1, 4)}),
    ("detectable_content:postscript", lambda r: {"postscript_marker": r.choice(["P.S.", "P.P.S", "Later"])}),
    ("detectable_format:number_bullet_lists", lambda r: {"num_bullets": r.randrange(1, 4)}),
    ("detectable_format:constrained_response", lambda r: {}),
    ("detectable_format:number_highlighted_sections", lambda r: {"num_highlights": r.randrange(1, 3)}),
    ("detectable_format:multiple_sections", lambda r: {"section_spliter": r.choice(["Section", "SECTION"]), "num_sections": r.randrange(1, 3)}),
    ("detectable_format:json_format", lambda r: {}),
    ("detectable_format:title", lambda r: {}),
    ("combination:two_responses", lambda r: {}),
    ("combination:repeat_prompt", lambda r: {"prompt_to_repeat": "write about a river"}),
    ("startend:end_checker", lambda r: {"end_phrase": r.choice(["That is all.", "yes."])}),
    ("startend:quotation", lambda r: {}),
    ("punctuation:no_comma", lambda r: {}),
]


def main():
    r, rows = random.Random(3), []
    for i in range(240):
        answer = "".join(r.choice(PIECES) for _ in range(r.randrange(0, 8)))
        names, kwargs = zip(*[(n, k(r)) for n, k in (KINDS[i % len(KINDS)], r.choice(KINDS))])
        doc = {"key": i, "prompt": "p", "instruction_id_list": list(names), "kwargs": list(kwargs)}
        rows.append({"row": doc, "answer": answer, "metrics": utils.process_results(doc, [answer])})
    text = "[\n" + ",\n".join(json.dumps(x, ensure_ascii=False) for x in rows) + "\n]\n"
    (Path(sys.argv[1]) / "instructions.json").write_text(text, encoding="utf-8")


main()
