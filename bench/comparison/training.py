"""Rows of complete training steps: tokens per second beside PyTorch, share of the fp32 peak, memory."""

import dataclasses
import pathlib
import statistics

from . import row, turns

TORCH = pathlib.Path(__file__).resolve().parent.parent / "peers/torch_gpt.py"
VARIANTS = ("eager", "compile", "eager-bf16", "compile-bf16")
BY = "fp32 FMA peak P, measured before and after each trial"


@dataclasses.dataclass
class Shape:
    preset: str
    ours: list
    torch: list  # arguments of torch_gpt.py, or None: no peer has this model
    llmc: list  # arguments of llmc_step, or None
    tokens: int
    bar_ratio: float | None
    bar_of_limit: float | None
    trials: int = 9
    warm_up: int = 2  # and a round that does not count


# GPT-2's block without biases, as torch_gpt.py has it, AdamW on everything.
PLAIN = ["--model.norm_bias=false", "--model.attention_bias=false", "--model.mlp_bias=false", "--model.mlp=gelu", "--optimizer.matrices=adamw"]
SMALL = ["--batch=12", "--length=256", "--vocab=65", *PLAIN]
EXPERTS = ["--model.moe.experts=8", "--model.moe.top_k=2", "--model.moe.hidden=768"]
# What 124M recomputes.
AGAIN = '--memory.recompute=["activation", "add_norm.h"%s]'
ZAYA_TRIALS = 27  # its bar is nearer than the noise of nine
SHAPES = {
    "dense-10m": Shape("gpt-10m", SMALL, ["--batch=12"], [6, 6, 384, 65, 12, 256], 3072, 1.3, 0.80),
    "dense-124m": Shape("gpt2", ["--batch=4", "--length=256", "--vocab=50304", "--model.context=1024", AGAIN % "", *PLAIN],
                        ["--layers=12", "--heads=12", "--width=768", "--vocabulary=50304", "--batch=4"], [12, 12, 768, 50304, 4, 256], 1024, 1.3, 0.78, warm_up=1),
    "moe": Shape("gpt-10m", [*SMALL, *EXPERTS], ["--batch=12", "--experts=8", "--top=2", "--hidden=768"], None, 3072, 1.8, None, warm_up=4),
    "zaya-small": Shape("zaya-small", ["--model.moe.experts=16", "--batch=12", "--length=256", "--optimizer.matrices=adamw"], None, None, 3072, None, None, warm_up=4),
}


def precision(name):
    return "bf16" if name.endswith("bf16") else "f32"


def ours(context, shape, *more):
    return [context.ingot, "bench", "step", shape.preset, "--paced", f"--warm-up={shape.warm_up}", *shape.ours, *more]


def theirs(context, shape, variant):
    return [context.peers.python, TORCH, "--paced", f"--variant={variant}", f"--threads={context.threads}", f"--warmup={shape.warm_up}", *shape.torch]


def limits_of(facts, trials):
    """Tokens per second at the mean of the two peaks around each trial."""
    return [0.5e9 * (t["peak_before_gflops"] + t["peak_after_gflops"]) / facts["flops_per_token"] for t in trials]


def rates(trials):
    return [t["tokens_per_second"] for t in trials]


def contenders(context, name, shape):
    """Programs to measure, and why the peer is missing."""
    programs = {"ingot f32": ours(context, shape), "ingot bf16": ours(context, shape, "--bf16")}
    if shape.torch is None:
        return programs, "no peer has this model"
    why = context.peers.missing("torch")
    if why:
        return programs, why
    known = None if context.choose else context.peers.load_choice(name)
    return programs | {f"torch {v}": theirs(context, shape, v) for v in VARIANTS if known is None or f"torch {v}" in known}, ""


def step_rows(name, context):
    """Both precisions, and the fastest of ours against the fastest of theirs."""
    shape = SHAPES[name]
    programs, missing = contenders(context, name, shape)
    facts, answers, _ = turns.measure(programs, context.trials_of(shape.trials), context.threads, context.say)
    mine = {p: answers[f"ingot {p}"] for p in ("f32", "bf16")}
    peers = {n: rates(a) for n, a in answers.items() if n.startswith("torch")}
    if peers and (context.choose or context.peers.load_choice(name) is None):
        torch = {n: a for n, a in answers.items() if n in peers}
        context.peers.save_choice(name, turns.worth_measuring(torch, {n: precision(n) for n in torch}))
    fastest = max(mine, key=lambda p: statistics.median(rates(mine[p])))
    peaks = [t[k] for t in answers["ingot f32"] for k in ("peak_before_gflops", "peak_after_gflops")]
    notes = [f"P {statistics.median(peaks):.0f} GFLOP/s"]
    notes.append(f"{facts['ingot f32']['flops_per_token'] / 1e6:.1f} MFLOP a token")
    notes += sorted({f"torch {f['version']}" for n, f in facts.items() if n in peers})
    rows = []
    for suffix, chosen, against in [("", fastest, peers), *((f"-{p}", p, {n: v for n, v in peers.items() if precision(n) == p}) for p in mine)]:
        bars = (shape.bar_ratio, shape.bar_of_limit) if suffix in ("", "-f32") else (shape.bar_ratio, None)
        target = row.Target(name + suffix, "tokens/s", BY, *bars)
        rows.append(row.make(target, rates(mine[chosen]), against, missing, limits_of(facts[f"ingot {chosen}"], mine[chosen]), [f"ours: {chosen}", *notes]))
    return rows


def beside_llmc(name, context):
    """The step in fp32 beside llm.c's, which is too slow to take part in every trial of the row above."""
    shape = SHAPES[name]
    programs = {"ingot f32": ours(context, shape)}
    missing = context.peers.lacks("llmc", "llmc/llmc_step")
    if not missing:
        programs["llm.c"] = [context.peers.folder / "llmc/llmc_step", *shape.llmc, 0]
    facts, answers, _ = turns.measure(programs, context.trials_of(3), context.threads, context.say)
    mine = answers["ingot f32"]
    target = row.Target(f"{name}-beside-llmc", "tokens/s", BY, bar_ratio=shape.bar_ratio)
    notes = ["ours: f32"] if missing else ["ours: f32", f"llm.c {facts['llm.c']['version']}, which has biases too"]
    return [row.make(target, rates(mine), None if missing else {"llm.c": rates(answers["llm.c"])}, missing, limits_of(facts["ingot f32"], mine), notes)]


def moe_over_dense(context):
    """The mixture beside the dense model of equal active FLOPs, both ours."""
    dense, moe = SHAPES["dense-10m"], SHAPES["moe"]
    _, answers, _ = turns.measure({"moe": ours(context, moe), "dense": ours(context, dense)}, context.trials_of(9), context.threads, context.say)
    target = row.Target("moe-over-dense", "tokens/s", "our dense model's tokens/s at equal active FLOPs", bar_of_limit=0.92)
    return [row.make(target, rates(answers["moe"]), limits=rates(answers["dense"]))]


def zaya_over_dense(context):
    """What ZAYA's FLOPs would allow at the dense model's share of P in the same minutes."""
    dense, zaya = SHAPES["dense-10m"], SHAPES["zaya-small"]
    facts, answers, _ = turns.measure({"zaya": ours(context, zaya), "dense": ours(context, dense)}, context.trials_of(ZAYA_TRIALS), context.threads, context.say)
    factor = facts["dense"]["flops_per_token"] / facts["zaya"]["flops_per_token"]
    target = row.Target("zaya-small", "tokens/s", "its FLOPs at our dense efficiency", bar_of_limit=0.88)
    return [row.make(target, rates(answers["zaya"]), limits=[factor * r for r in rates(answers["dense"])])]


def memory(context):
    """The most resident memory of a 124M step: state (16 bytes a parameter) and 35 % of what PyTorch needs beside it. In fp32 the attention's
    products run forward twice for it, which takes a twentieth of the speed."""
    shape = SHAPES["dense-124m"]
    in_f32 = dataclasses.replace(shape, ours=[AGAIN % ', "attention/linear"' if a == AGAIN % "" else a for a in shape.ours])
    programs = {"ingot f32": ours(context, in_f32), "ingot bf16": ours(context, shape, "--bf16")}
    missing = context.peers.missing("torch")
    if not missing:
        programs["torch eager"] = theirs(context, shape, "eager")
    facts, _, peak = turns.measure(programs, 1, context.threads, context.say)
    state = 16 * facts["ingot f32"]["parameters"]
    rows = []
    limit, notes = None, [f"state {state / 2**20:.0f} MiB"]
    if not missing:
        torch_state = 16 * facts["torch eager"]["parameters"]
        beside = peak["torch eager"] - facts["torch eager"]["libraries_bytes"] - torch_state
        limit = (state + 0.35 * beside) / 2**20
        notes.append(f"PyTorch beside state and libraries {beside / 2**20:.0f} MiB")
    for p in ("f32", "bf16"):
        target = row.Target(f"memory-124m-{p}", "MiB", "state + 35 % of PyTorch's other memory (libraries not counted; all of ours is)", bar_of_limit=1.0, less=True)
        rows.append(row.make(target, [peak[f"ingot {p}"] / 2**20], None if missing else {"torch eager": [peak["torch eager"] / 2**20]}, missing,
                             None if limit is None else [limit], notes))
    return rows
