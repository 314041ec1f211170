"""Rows of single operations: products, attention, optimizers, against P or the memory's rates."""

import re
import statistics

from . import process, row, training, turns

P = "fp32 FMA peak P, measured around each trial"
LARGE = {"attention.qkv", "attention.out", "mlp.up", "mlp.down"}
PRODUCT_TRIALS = 27  # the least of twelve medians is lower than any of them, by what noise is left in each
BANDS = {256: 0.88, 128: 0.82, 64: 0.76, 32: 0.65}


def bench(context, name, *arguments):
    return process.json_of([context.ingot, "bench", name, *arguments], context.threads)


def gemm_bench(context, *arguments):
    short = ["--seconds=0.001"] if context.quick else []
    return bench(context, "gemm", "gpt2", "--vocab=50304", f"--trials={context.trials_of(PRODUCT_TRIALS)}", *short, *arguments)


def worst_row(name, products, peak, bar, trials, note):
    """Of products that must all reach the bar: the one that comes least near."""
    worst = min(products, key=lambda p: p["share_of_peak"]["median"])
    values = [peak * worst["share_of_peak"][k] for k in ("least", "median", "most")]
    made = row.make(row.Target(name, "GFLOP/s", P, bar_of_limit=bar), values, peer="each against P", limits=[peak] * 3,
                    notes=[f"worst of {len(products)}: {worst['name']} {worst['form']} n {worst['n']} k {worst['k']}", note])
    return made | {"trials": trials}


def shares(products):
    return " ".join(f"{p['name'].split('.')[-1]} {p['form']} {p['share_of_peak']['median']:.2f}" for p in products)


def gemm(context):
    """Products of a 124M model with 1,024 rows: every form, both kinds of operands."""
    report = gemm_bench(context, "--batch=4", "--length=256", "--parts=model")
    rows = []
    for kind in ("f32", "bf16"):
        for name, bar, wanted in [("large", 0.92, LARGE), ("head", 0.88, {"head"})]:
            products = [p for p in report["products"] if p["type"] == kind and p["name"] in wanted]
            rows.append(worst_row(f"gemm-{name}-{kind}", products, report["peak_gflops"], bar, context.trials_of(PRODUCT_TRIALS), shares(products)))
    return rows


def gemm_experts(context):
    """The products of 8 experts of 768 with so many rows each."""
    report = bench(context, "gemm", "gpt-10m", "--vocab=65", *training.EXPERTS, "--batch=4", "--parts=experts", f"--band={','.join(map(str, BANDS))}",
                   f"--trials={context.trials_of(PRODUCT_TRIALS)}", *(["--seconds=0.001"] if context.quick else []))
    rows = []
    for kind in ("f32", "bf16"):
        for band, bar in BANDS.items():
            products = [p for p in report["products"] if p["type"] == kind and p["rows"] == band * p["experts"] and not p["uneven"]]
            rows.append(worst_row(f"gemm-experts-{band}-{kind}", products, report["peak_gflops"], bar, context.trials_of(PRODUCT_TRIALS), shares(products)))
    return rows


FEW = ["--batch=1", "--length=64"]  # tokens: the update is what counts
SHAPES = {"1024": ["gpt2", "--batch=1", "--length=1024", "--model.context=1024", "--vocab=64", "--model.layers=1"],
          "4096-gqa": ["llama-small", "--vocab=64", "--batch=1", "--length=4096", "--model.context=4096", "--model.heads=8", "--model.kv_heads=2", "--model.head_width=128", "--model.layers=1"]}


def attention(context):
    """Forward and backward of causal attention: 2 + 5 products of 2 d FLOPs for each unmasked pair of a head."""
    rows = []
    for name, arguments in SHAPES.items():
        for kind in ("f32", "bf16"):
            report = bench(context, "ops", *arguments, "--op=attention", f"--trials={context.trials_of(9)}", *(["--bf16"] if kind == "bf16" else []),
                           *(["--seconds=0.001"] if context.quick else []))
            passes = report["rows"]
            flops = sum(p["flops"] for p in passes)
            values = [1e-9 * flops / sum(p["seconds"][k] for p in passes) for k in ("most", "median", "least")]
            made = row.make(row.Target(f"attention-{name}-{kind}", "GFLOP/s", P, bar_of_limit=0.70), values, peer="against P", limits=[report["peak_gflops"]] * 3,
                            notes=[", ".join(f"{p['pass']} {1e-9 * p['flops'] / p['seconds']['median'] / report['peak_gflops']:.2f}" for p in passes)])
            rows.append(made | {"trials": context.trials_of(9)})
    return rows


def memory_rates(context):
    """Bytes per second of reading, and of storing over what was read, from memory."""
    report = bench(context, "machine", "--parts=memory", f"--threads={context.threads}", f"--trials={context.trials_of(5)}")
    most = max(r["bytes"] for r in report["memory"])
    return {r["pass"]: r["bytes_per_second"]["median"] for r in report["memory"] if r["bytes"] == most}


def adamw(context):
    """Clipping and AdamW on 124M parameters, against the bytes that they move: the gradient twice (norm, update), and weight and two
    moments in place, where storing costs what it costs a loop that stores over memory (its line is read first, as it is here)."""
    shape = training.SHAPES["dense-124m"]
    programs = {"ingot": [context.ingot, "bench", "step", shape.preset, "--paced", "--warm-up=1", *FEW, *(a for a in shape.ours if not a.startswith(("--batch", "--length")))]}
    missing = context.peers.missing("torch")
    if not missing:
        programs["torch fused"] = [*training.theirs(context, shape, "eager"), "--batch=1", "--context=64"]
    before = memory_rates(context)
    facts, answers, _ = turns.measure(programs, context.trials_of(9), context.threads, context.say)
    after = memory_rates(context)
    count = facts["ingot"]["parameters"]
    rate = {k: (before[k] + after[k]) / 2 for k in before}
    light = 1e3 * count * (8 / rate["read"] + 12 / rate["write"])
    seconds = {name: [1e3 * t["update_seconds"] for t in trials] for name, trials in answers.items()}
    target = row.Target("adamw-124m", "ms", "8 B a parameter read, 12 B stored in place, at the rates of memory", bar_of_limit=1 / 1.25, less=True)
    return [row.make(target, seconds["ingot"], {n: s for n, s in seconds.items() if n != "ingot"}, missing, [light] * len(seconds["ingot"]),
                     [f"read {rate['read'] * 1e-9:.0f}, store {rate['write'] * 1e-9:.0f} GB/s"])]


def muon(context):
    """Newton-Schulz of five steps beside the same with plain products (both ours, interleaved, in one program)."""
    text = process.output([context.programs / "ingot_bench_optim", context.trials_of(9)], context.threads)
    rows = []
    for match in re.finditer(r"^ *(\d+) x \[ *(\d+), *(\d+)\] +([\d.]+) +([\d.]+)% +([\d.]+) +([\d.]+)", text, re.M):
        count, high, wide = (int(x) for x in match.group(1, 2, 3))
        ours, share, plain = (float(x) for x in match.group(4, 5, 6))
        if count * high * wide < 1 << 19:
            continue  # microseconds: of no weight in a step
        target = row.Target(f"muon-{count}x{high}x{wide}", "ms", bar_ratio=1 / 0.75, less=True)
        rows.append(row.make(target, [ours], {"plain products": [plain]}, notes=[f"{share:.0f} % of P by the FLOPs that ours does"]) | {"trials": context.trials_of(9)})
    if not rows:
        raise process.Failed(f"ingot_bench_optim printed no Newton-Schulz line:\n{text}")
    return rows
