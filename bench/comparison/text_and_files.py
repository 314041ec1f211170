"""Rows of what surrounds a step: tokenizer, checkpoints, start-up."""

import contextlib
import json
import pathlib
import re
import sys
import tempfile
import time

from . import process, row

HERE = pathlib.Path(__file__).resolve().parent.parent
STATE_MIB = 12 * 124_439_808 >> 20  # weights and two moments of the 124M model


def tokenizer(part, context):
    """Encoding text, or learning 32,768 tokens, beside tokenizers; bench/tokenizer.py does the work and compares the results."""
    missing = context.peers.missing("tokenizers")
    program = context.programs / "ingot_bench_tokenizer"
    if missing:
        target = row.Target(f"{part}-gpt2", "MB/s", bar_ratio=2.0)
        return [row.make(target, alone(part, context, program), None, missing, notes=["one thread, this repository's documentation"])]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        process.output([sys.executable, HERE / "tokenizer.py", program, part, "--patterns=gpt2", f"--python={context.peers.python}", f"--rounds={context.trials_of(3)}",
                        f"--threads={'1,2' if context.threads > 1 else '1'}", f"--json={path}"], context.threads, 3600)
        made = json.loads(path.read_text())
    rows = []
    for r in made:
        name = re.sub(r", threads? ", " x", r["name"]).replace(", ours 2 / ours 1", " scaling")
        target = row.Target(name.replace(" ", "-").replace(",", ""), r["unit"], bar_ratio=r["bar_ratio"])
        result = row.make(target, [r["ours"]], {"ours, 1 thread" if "scaling" in name else "tokenizers": [r["peer"]]})
        # Their ratio is the median of the rounds'.
        rounds = context.trials_of(3)
        result |= {"ratio": r["ratio"], "trials": rounds, "spread": {"ratio": (r["spread"][1] - r["spread"][0]) / r["ratio"] if rounds > 1 else None}}
        rows.append(result)
    return rows


def alone(part, context, program):
    """Ours without a peer, with this repository's own text."""
    with tempfile.TemporaryDirectory() as folder:
        text, saved = pathlib.Path(folder) / "text", pathlib.Path(folder) / "tokenizer.json"
        text.write_text("\f".join(p.read_text() for p in sorted(HERE.parent.glob("docs/*.md"))) * 8)
        train = [program, "train", "gpt2", 2048, text, saved]
        process.output(train, context.threads)
        work = train if part == "train" else [program, "encode", saved, text]
        seconds = [json.loads(process.output(work, 1))["seconds"] for _ in range(context.trials_of(5))]
        return [text.stat().st_size * 1e-6 / s for s in seconds]


def checkpoint(context):
    """The copy that a step waits for against one copy of as many bytes; the write against one plain file and its sync."""
    mib = 64 if context.quick else STATE_MIB
    rounds = context.trials_of(5)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        text = process.output([context.programs / "ingot_bench_checkpoint", folder, mib, rounds], context.threads)
    rows = []
    for what, name, of, bar in [("copy", "checkpoint-pause", "memcpy of the same bytes by one thread", 1 / 1.5), ("write", "checkpoint-write", "one plain file with a sync", 0.8)]:
        match = re.search(rf"^{what} +([\d.]+) .*? ([\d.]+) +[\d.]+$", text, re.M)
        if not match:
            raise process.Failed(f"ingot_bench_checkpoint printed no line of '{what}':\n{text}")
        ours, limit = map(float, match.groups())
        target = row.Target(name, "GB/s", of, bar_of_limit=bar)
        rows.append(row.make(target, [ours], None, "a limit of the machine", [limit], [f"{mib} MiB"]) | {"trials": rounds})
    return rows


RECIPE = """[run]
folder = "run"
[model]
preset = "gpt-10m"
layers = 4
width = 128
heads = 4
kv_heads = 4
head_width = 32
hidden = 512
[tokenizer]
kind = "characters"
[[data.sources]]
name = "text"
path = "text.txt"
documents = "blank_line"
[[phases]]
steps = 2
warmup = 1
batch = 12
sequence = 64
[evaluation]
every = 0
[samples]
prompts = []
"""


def first_step(context, folder):
    """Seconds from the start of the program to the end of the first step, the text not yet prepared."""
    metrics = folder / "run/metrics.jsonl"
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(folder / "log", "w"))
        begin = time.perf_counter()
        command = [context.ingot, "run", "recipe.toml"]
        child = process.started(command, context.threads, cwd=folder, stdout=log, stderr=log)
        while not (metrics.exists() and "\n" in metrics.read_text()):
            if child.poll() is not None:
                break
            time.sleep(0.002)
        seconds = time.perf_counter() - begin
        if child.wait() or not metrics.exists():
            raise process.failure(command, f"ended with {child.returncode}", (folder / "log").read_text())
    return seconds


def start_up(context):
    """A model of 0.8 M on half a megabyte of text: tokenizer, shards, preflight and one step."""
    seconds = []
    for _ in range(context.trials_of(9)):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "recipe.toml").write_text(RECIPE)
            (folder / "text.txt").write_text("\n\n".join(f"The stone {i} is a stone under a bridge, and the river runs over it." for i in range(8000)))
            seconds.append(first_step(context, folder))
    target = row.Target("start-up", "s", "the target", bar_of_limit=1.0, less=True)
    return [row.make(target, seconds, None, "no peer prepares text", [1.0] * len(seconds))]
