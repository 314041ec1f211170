#!/usr/bin/env python3
"""The cost of several ranks on one machine: two ranks of one thread against one process of two threads, same global batch.

speed       tokens per second of data parallelism, the sharded optimizer (ZeRO-1), full sharding and expert parallelism,
            as a share of one process's. The two runs of a pair follow each other; a round gives a ratio, the rounds its
            median and spread. Steps of experts count once the router has balanced; the busiest rank's part of a layer's
            rows, which bounds what expert parallelism can reach, stands beside the ratio.
pause       how long a step waits for a checkpoint to be copied, with 1, 2 and 4 ranks.
muon        peak memory of Muon when ranks exchange matrices that lie across their shares, above that of shares that cut
            none, in units of the largest matrix.

Every pair must reach the same loss, else it stops. Needs an idle machine; about a quarter of an hour.

usage: bench/parallel.py build/release/ingot [speed pause muon] [--rounds 5] [--steps 10] [--json FILE]"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

DENSE = ["--model.preset=gpt-10m", "--phases.0.batch=12", "--phases.0.micro_batch=6", "--phases.0.sequence=256"]
EXPERTS = ["--model.preset=moe-small", "--phases.0.batch=12", "--phases.0.micro_batch=6", "--phases.0.sequence=256"]
# name: model, ranks, options; each is compared with one process of as many threads.
PAIRS = {
    "data": (DENSE, 2, []),
    "shard_optimizer": (DENSE, 2, ["--parallel.shard=optimizer"]),
    "shard_full": (DENSE, 2, ["--parallel.shard=full"]),
    "data_of_experts": (EXPERTS, 2, []),
    "experts": (EXPERTS, 2, ["--parallel.expert=2"]),
}
# Steps that do not count: the first ones allocate; a router sends two thirds of the first steps' rows to one half of the experts.
WARM_UP = {id(DENSE): 2, id(EXPERTS): 16}
WANTED = {"data": 0.95, "shard_optimizer": 0.93, "experts": 0.85}
SMALL = ["--model.layers=2", "--model.width=32", "--model.hidden=64", "--model.heads=2", "--model.kv_heads=2", "--model.head_width=16",
         "--phases.0.batch=4", "--phases.0.micro_batch=1", "--phases.0.sequence=16", "--model.context=64"]
SMALL_EXPERTS = ["--model.moe.experts=4", "--model.moe.hidden=32"]
# Ranks as root in a container, and more of them than cores.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


class Bench:
    def __init__(self, o, folder):
        self.o, self.folder, self.runs = o, pathlib.Path(folder), 0
        words = [f"{a}{b}" for a in ("stone", "river", "wind", "salt", "hill", "king") for b in ("", "s", "ing", "ed", "y")]
        rng = random.Random(1)
        text = (" ".join(rng.choice(words) for _ in range(12)) + ("\n\n" if i % 8 == 7 else "\n") for i in range(20000))
        (self.folder / "text.txt").write_text("".join(text))
        (self.folder / "recipe.toml").write_text('[[data.sources]]\nname = "words"\ndocuments = "blank_line"\n')

    def run(self, model, ranks, options, threads=1):
        """The rows of the metrics of a run's steps that count."""
        self.runs += 1
        run = self.folder / f"run{self.runs}"
        o = [f"--run.folder={run}", f"--data.folder={self.folder}/data", f"--data.sources.0.path={self.folder}/text.txt",
             "--tokenizer.kind=characters", f"--phases.0.steps={self.o.steps + WARM_UP[id(model)]}", "--phases.0.warmup=0", "--phases.0.lr=1e-3",
             "--evaluation.every=0", "--samples.prompts=[]", "--checkpoint.every=0", "--checkpoint.keep_last=1", "--parallel.self_test="]
        o += model + (SMALL + (SMALL_EXPERTS if model is EXPERTS else []) if self.o.small else [])
        command = [self.o.ingot, "run", str(self.folder / "recipe.toml"), *(["--kernels=any"] if self.o.small else []), *o, *options]
        if ranks > 1:
            command = [self.o.ingot, "launch", "-n", str(ranks), "--", *command[1:]]
        environment = dict(os.environ, **MPI, INGOT_THREADS=str(threads), MALLOC_MMAP_THRESHOLD_="131072", MALLOC_TRIM_THRESHOLD_="131072")
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        shutil.rmtree(run)
        return rows[WARM_UP[id(model)]:]


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "values": values}


def step_seconds(rows):
    return statistics.median(r["step_seconds"] for r in rows)


def busiest_share(rows, ranks):
    """The part of a layer's rows that goes to the busiest of ranks which hold the experts in equal blocks: mean over steps and layers."""
    loads = [load for row in rows for name, load in row.items() if name.startswith("router/") and name.endswith("/load")]
    block = len(loads[0]) // ranks
    return statistics.mean(max(sum(load[r * block:(r + 1) * block]) for r in range(ranks)) for load in loads)


def require_equal_losses(name, a, b):
    for x, y in zip(a, b):
        if abs(x["loss"] - y["loss"]) > 1e-3 * x["loss"]:
            sys.exit(f"{name}: the losses of step {x['step']} are {x['loss']} and {y['loss']}: not the same work")


def speed(bench, o):
    adamw = ["--optimizer.matrices=adamw"]
    ratios, seconds, busiest = ({name: [] for name in PAIRS} for _ in range(3))
    for _ in range(o.rounds):
        for name, (model, ranks, options) in PAIRS.items():
            alone = bench.run(model, 1, adamw, threads=ranks)
            rows = bench.run(model, ranks, adamw + options)
            require_equal_losses(name, alone, rows)
            seconds[name].append(step_seconds(rows))
            ratios[name].append(step_seconds(alone) / step_seconds(rows))
            if name == "experts":
                busiest[name].append(busiest_share(rows, ranks))
    result = {}
    print(f"{'two ranks of one thread':<26}{'ms a step':>10}   share of one process's speed: median (least .. most)")
    for name, r in ratios.items():
        result[name] = {"step_seconds": spread(seconds[name]), "share": spread(r), "wanted": WANTED.get(name)}
        notes = f"   wanted {WANTED[name]}" if name in WANTED else ""
        if name == "experts":
            result[name]["busiest_rank"] = spread(busiest[name])
            notes += f"   busiest rank: {statistics.median(busiest[name]):.3f} of the rows"
        print(f"{name:<26}{1e3 * statistics.median(seconds[name]):>10.1f}   {statistics.median(r):.3f} ({min(r):.3f} .. {max(r):.3f}){notes}")
    return result


def pause(bench, o):
    """From the end of a step that saves to the end of the next, less that step's own time; less the same without a save."""
    result = {}
    print(f"{'ranks':<8}checkpoint pause in ms: median (least .. most)")
    for ranks in (1, 2, 4):
        pauses = []
        for _ in range(o.rounds):
            rows = bench.run(DENSE, ranks, ["--checkpoint.every=4", "--phases.0.batch=12", "--phases.0.micro_batch=1"])
            gaps = {a["step"]: b["wall"] - a["wall"] - b["step_seconds"] for a, b in zip(rows, rows[1:])}
            plain = statistics.median(g for step, g in gaps.items() if step % 4)
            pauses += [g - plain for step, g in gaps.items() if step % 4 == 0]
        result[str(ranks)] = spread(pauses)
        print(f"{ranks:<8}{1e3 * statistics.median(pauses):.2f} ({1e3 * min(pauses):.2f} .. {1e3 * max(pauses):.2f})")
    return result


def muon(bench, o):
    """Few tokens, so that the update is what needs most memory."""
    size = ["--model.layers=4", "--model.width=512", "--model.heads=8", "--model.kv_heads=8", "--model.hidden=2048"]
    shape = [*size, "--phases.0.batch=2", "--phases.0.micro_batch=1", "--phases.0.sequence=16", "--parallel.shard=optimizer"]
    largest = 2048 * 512 * 4
    if o.small:
        shape = shape[len(size):]
        largest = 64 * 32 * 4
    extra = []
    for _ in range(o.rounds):
        cut, whole = (max(r["memory_bytes"] for r in bench.run(DENSE, 2, [*shape, f"--parallel.whole_matrices={w}"])) for w in ("false", "true"))
        extra.append((cut - whole) / largest)
    print(f"Muon's exchange: {statistics.median(extra):.2f} largest matrices ({min(extra):.2f} .. {max(extra):.2f}); wanted: at most 2")
    return {"largest_matrix_bytes": largest, "extra": spread(extra), "wanted": 2}


def main():
    parts = {"speed": speed, "pause": pause, "muon": muon}
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("ingot", type=lambda path: str(pathlib.Path(path).resolve()))
    p.add_argument("parts", nargs="*", metavar="part", help="speed, pause, muon; default: all")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--small", action="store_true", help="a model that measures nothing: does it run?")
    p.add_argument("--json", help="write the numbers to this file too")
    o = p.parse_args()
    if unknown := set(o.parts) - set(parts):
        p.error(f"unknown: {' '.join(unknown)}; there are {' '.join(parts)}")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(o, folder)
        result = {"format": 1, "cores": os.cpu_count(), "load": os.getloadavg()[0], "rounds": o.rounds, "steps": o.steps, "small": o.small}
        result |= {name: parts[name](bench, o) for name in o.parts or parts}
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
