#!/usr/bin/env python3
"""Runs recipes/router-study.toml in three arms and some seeds, and prints the tables and the curves of docs/results.md.

Arms differ in the feed-forward part only and spend the same training FLOPs per token within 2 %:
  zaya    ZAYA1's router (down-projection, depth averaging, MLP, skip class), selection bias by AdamW
  linear  one matrix as router, the same selection bias; experts a little wider to spend the router's FLOPs
  dense   one SwiGLU block of the active width

usage: bench/studies/router_balance.py INGOT FOLDER [--seeds 1,2,3] [--jobs 2]
Runs that are already complete in FOLDER are not repeated. Needs only Python's standard library.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess

RECIPE = pathlib.Path(__file__).resolve().parents[2] / "recipes" / "router-study.toml"
ARMS = {
    "zaya": [],
    "linear": ["--model.moe.router=linear", "--model.moe.skip_class=false", "--model.moe.hidden=288"],
    "dense": ["--model.moe.experts=0", "--model.moe.balance=none", "--model.moe.skip_class=false", "--model.hidden=288"],
}
BALANCED = 0.99
WINDOW = 20
SOURCES = ("bible", "fortunes", "jargon")


def command(ingot, folder, arm, seed, *extra):
    run = [f"--run.folder={folder}/{arm}-{seed}", f"--run.seed={seed}"]
    return [ingot, "run", str(RECIPE), *run, *ARMS[arm], *extra]


def train(ingot, folder, arm, seed, threads):
    log = pathlib.Path(folder) / f"{arm}-{seed}.log"
    with log.open("a") as out:
        environment = dict(os.environ, INGOT_THREADS=str(threads))
        subprocess.run(command(ingot, folder, arm, seed), stdout=out, stderr=out, check=True, env=environment)


def step_gflop(ingot, folder, arm):
    plan = subprocess.run(command(ingot, folder, arm, 1, "--plan"), capture_output=True, text=True, check=True)
    return float(re.search(r"step: ([0-9.]+) GFLOP", plan.stdout + plan.stderr).group(1))


def rows(folder, arm, seed):
    with open(f"{folder}/{arm}-{seed}/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines]


def entropies(metrics):
    """The load entropy of each step, as the mean over layers; [] for a dense model."""
    values = []
    for row in metrics:
        layers = [v for k, v in row.items() if re.fullmatch(r"router/\d+/entropy", k)]
        if layers:
            values.append(statistics.mean(layers))
    return values


def steps_until_balanced(values):
    """The first step (1-based) whose mean over the last WINDOW steps reaches BALANCED; None if it never does."""
    for end in range(WINDOW, len(values) + 1):
        if statistics.mean(values[end - WINDOW:end]) >= BALANCED:
            return end
    return None


def last_validation(metrics, source, until):
    found = [row[f"val/{source}/loss"] for row in metrics if row["step"] <= until and f"val/{source}/loss" in row]
    return found[-1]


def mean_and_spread(values):
    return f"{statistics.mean(values):.3f} ± {statistics.pstdev(values):.3f}"


def report(ingot, folder, seeds, switch):
    print("| arm | GFLOP per step | " + " | ".join(f"{s}" for s in SOURCES) + " | jargon, after its stage |")
    print("|---|---|" + "---|" * (len(SOURCES) + 1))
    for arm in ARMS:
        runs = [rows(folder, arm, seed) for seed in seeds]
        mixture = [mean_and_spread([last_validation(r, s, switch) for r in runs]) for s in SOURCES]
        after = mean_and_spread([last_validation(r, "jargon", 1 << 40) for r in runs])
        print(f"| {arm} | {step_gflop(ingot, folder, arm):.1f} | " + " | ".join(mixture) + f" | {after} |")
    marks = (1, 10, 20, 40, 80, 160, switch, switch + 1, switch + 5, switch + 20, switch + 100)
    print("\n| arm | " + " | ".join(f"{m}" for m in marks) + " | steps to 0.99 | after the switch |")
    print("|---|" + "---|" * (len(marks) + 2))
    for arm in ARMS:
        curves = [entropies(rows(folder, arm, seed)) for seed in seeds]
        if not curves[0]:
            continue
        at = [f"{statistics.mean(c[m - 1] for c in curves):.3f}" for m in marks]
        first = ", ".join(str(steps_until_balanced(c[:switch]) or "never") for c in curves)
        again = ", ".join(str(steps_until_balanced(c[switch:]) or "never") for c in curves)
        print(f"| {arm} | " + " | ".join(at) + f" | {first} | {again} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ingot")
    parser.add_argument("folder")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument("--switch", type=int, default=300, help="steps of the first stage")
    options = parser.parse_args()
    seeds = [int(s) for s in options.seeds.split(",")]
    os.makedirs(options.folder, exist_ok=True)
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(train, options.ingot, options.folder, arm, seed, threads) for seed in seeds for arm in ARMS]
        for job in jobs:
            job.result()
    report(options.ingot, options.folder, seeds, options.switch)


if __name__ == "__main__":
    main()
