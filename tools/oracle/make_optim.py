"""Optimizer and schedule references in double precision: 50 steps of AdamW, AdEMAMix, Muon and the balancing-bias
controller from given random gradients, Newton-Schulz alone, and learning-rate schedules at every step ->
tests/fixtures/optim/."""

import math

import numpy as np
import torch
from transformers import optimization as hf

from common import FIXTURES, max_rel, save_json, save_tensors

STEPS = 50
KEPT = (1, 2, 10, 25, 50)  # parameters are stored after these steps
QUINTIC = (3.4445, -4.7750, 2.0315)
FOLDER = FIXTURES / "optim"


def float32_values(rng, shape, scale=1.0):
    """Random numbers that single and double precision share."""
    return torch.from_numpy((scale * rng.standard_normal(shape)).astype(np.float32)).double()


def nanogpt_lr(step, peak, warmup, total, floor):
    """karpathy/nanoGPT, train.py get_lr."""
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if step > total:
        return floor
    ratio = (step - warmup) / (total - warmup)
    return floor + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (peak - floor)


# AdamW --------------------------------------------------------------------------------------------

ADAMW_CASES = {
    "clipped": dict(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, max_norm=1.0, seed=11),
    "unclipped": dict(betas=(0.8, 0.99), eps=1e-10, weight_decay=0.0, max_norm=0.0, seed=12),
}
ADAMW_SHAPES = {"matrix": (9, 7), "vector": (5,), "scalar": (1,)}


def adamw_case(case):
    rng = np.random.default_rng(case["seed"])
    params = {n: torch.nn.Parameter(float32_values(rng, s)) for n, s in ADAMW_SHAPES.items()}
    # Norms on both sides of 1, and one column whose gradient is always zero.
    scales = 10.0 ** rng.uniform(-1.5, 0.7, STEPS)
    grads = {n: torch.stack([float32_values(rng, s, k) for k in scales]) for n, s in ADAMW_SHAPES.items()}
    grads["matrix"][:, :, 3] = 0
    lrs = [nanogpt_lr(t, 3e-2, 7, STEPS, 3e-3) for t in range(STEPS)]
    groups = [
        {"params": [params["matrix"]], "weight_decay": case["weight_decay"]},
        {"params": [params["vector"], params["scalar"]], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=case["betas"], eps=case["eps"], foreach=False)
    out = {f"init.{n}": p.float() for n, p in params.items()}
    out.update({f"grad.{n}": g.float() for n, g in grads.items()}, lr=torch.tensor(lrs, dtype=torch.float64))
    norms = []
    for t in range(STEPS):
        for n, p in params.items():
            p.grad = grads[n][t].clone()
        for group in optimizer.param_groups:
            group["lr"] = lrs[t]
        limit = case["max_norm"] or math.inf
        norms.append(torch.nn.utils.clip_grad_norm_(params.values(), limit).double())
        optimizer.step()
        if t + 1 in KEPT:
            out.update((f"param.{n}.{t + 1}", p.detach().clone()) for n, p in params.items())
    for n, p in params.items():
        out[f"exp_avg.{n}"], out[f"exp_avg_sq.{n}"] = (
            optimizer.state[p][k] for k in ("exp_avg", "exp_avg_sq")
        )
    return {**out, "norm": torch.stack(norms)}


# AdEMAMix -----------------------------------------------------------------------------------------

ADEMAMIX_CASES = {
    # Rising over the 50 steps, over the first 20, and not at all.
    "whole_run": dict(betas=(0.9, 0.999, 0.9999), alpha=8.0, warmup=STEPS, eps=1e-8, weight_decay=0.1),
    "short_rise": dict(betas=(0.9, 0.95, 0.99), alpha=5.0, warmup=20, eps=1e-8, weight_decay=0.0),
    "no_rise": dict(betas=(0.8, 0.99, 0.999), alpha=2.0, warmup=1, eps=1e-6, weight_decay=0.05),
}


def half_life(beta):
    return math.log(0.5) / math.log(beta)


def ademamix_case(case, init, grads, lrs):
    """Pagliardini, Ablin & Grangier 2024, algorithm 1, with the schedules of its section 3 (alpha linear, beta3 linear in
    its half-life)."""
    beta1, beta2, beta3 = case["betas"]
    theta, fast, slow, second = init.clone(), *(torch.zeros_like(init) for _ in range(3))
    kept = {}
    for t in range(1, STEPS + 1):
        g, progress = grads[t - 1], min(t / case["warmup"], 1.0)
        alpha = case["alpha"] * progress
        beta3_now = 0.5 ** (1 / ((1 - progress) * half_life(beta1) + progress * half_life(beta3)))
        fast = beta1 * fast + (1 - beta1) * g
        slow = beta3_now * slow + (1 - beta3_now) * g
        second = beta2 * second + (1 - beta2) * g**2
        fast_hat, second_hat = fast / (1 - beta1**t), second / (1 - beta2**t)
        update = (fast_hat + alpha * slow) / (second_hat.sqrt() + case["eps"])
        theta = theta - lrs[t - 1] * (update + case["weight_decay"] * theta)
        if t in KEPT:
            kept[f"param.{t}"] = theta
    return {**kept, "exp_avg": fast, "exp_avg_slow": slow, "exp_avg_sq": second}


def bf16_adamw(init, grads, lrs):
    """AdamW whose moments are rounded to bfloat16 (nearest) after every step; the update uses them before that."""
    w, m, v = init.clone(), torch.zeros_like(init), torch.zeros_like(init)
    for t in range(1, STEPS + 1):
        m = 0.9 * m + 0.1 * grads[t - 1]
        v = 0.95 * v + 0.05 * grads[t - 1] ** 2
        w = w * (1 - 0.1 * lrs[t - 1]) - lrs[t - 1] * (m / (1 - 0.9**t)) / ((v / (1 - 0.95**t)).sqrt() + 1e-8)
        m, v = (x.bfloat16().double() for x in (m, v))
    return w


def make_ademamix():
    rng = np.random.default_rng(51)
    lrs = [nanogpt_lr(t, 1e-2, 5, STEPS, 1e-3) for t in range(STEPS)]
    init = float32_values(rng, (9, 7))
    grads = (float32_values(rng, (1, 9, 7)) + float32_values(rng, (STEPS, 9, 7), 0.5)).float().double()
    out = {"init.w": init.float(), "grad.w": grads.float(), "lr": torch.tensor(lrs, dtype=torch.float64)}
    for name, case in ADEMAMIX_CASES.items():
        out.update((f"{name}.{key}", value) for key, value in ademamix_case(case, init, grads, lrs).items())
    out["bf16_adamw"] = bf16_adamw(init, grads, lrs)
    save_tensors(FOLDER / "ademamix.safetensors", out)
    notes = {"steps": STEPS, "seed": 51, "cases": ADEMAMIX_CASES}
    save_json(FOLDER / "ademamix.json", notes, "make_optim.py")
    print("ademamix", {n: max_rel(out[f"{n}.param.50"], init) for n in ADEMAMIX_CASES})


# Muon ---------------------------------------------------------------------------------------------

MUON_SHAPES = {"wide": (8, 12), "tall": (17, 6), "square": (10, 10), "stack": (3, 6, 9)}
MUON_CASES = {
    "sum_nesterov": dict(form="sum", nesterov=True, momentum=0.95, scale="match_rms", weight_decay=0.1),
    "sum": dict(form="sum", nesterov=False, momentum=0.95, scale="match_rms", weight_decay=0.0),
    "lerp_nesterov": dict(form="lerp", nesterov=True, momentum=0.95, scale="spectral", weight_decay=0.01),
    "lerp_warmup": dict(
        form="lerp",
        nesterov=True,
        momentum=0.95,
        scale="spectral",
        weight_decay=0.0,
        momentum_start=0.85,
        warmup=30,
    ),
    "cooldown": dict(
        form="sum",
        nesterov=True,
        momentum=0.95,
        scale="match_rms",
        weight_decay=0.0,
        momentum_start=0.85,
        warmup=15,
        momentum_end=0.8,
        cooldown=20,
    ),
    "no_momentum": dict(form="sum", nesterov=False, momentum=0.0, scale="match_rms", weight_decay=0.0),
}


def newton_schulz(g, steps=5, coefficients=QUINTIC, eps=1e-7):
    """Keller Jordan's quintic iteration without bf16 rounding; batched over leading dimensions."""
    a, b, c = coefficients
    transposed = g.shape[-2] > g.shape[-1]
    x = g.mT if transposed else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if transposed else x


def muon_scale(case, shape):
    r, c = shape[-2:]
    return 0.2 * math.sqrt(max(r, c)) if case["scale"] == "match_rms" else math.sqrt(max(1.0, r / c))


def muon_step(w, m, g, lr, case, step):
    beta = case["momentum"]
    if "warmup" in case:
        x = min(step / case["warmup"], 1.0)
        beta = (1 - x) * case["momentum_start"] + x * beta
    if "cooldown" in case and step > STEPS - case["cooldown"]:
        x = (step - (STEPS - case["cooldown"])) / case["cooldown"]
        beta = (1 - x) * case["momentum"] + x * case["momentum_end"]
    weight = 1.0 if case["form"] == "sum" else 1 - beta
    m.mul_(beta).add_(g, alpha=weight)
    update = weight * g + beta * m if case["nesterov"] else m
    w.mul_(1 - lr * case["weight_decay"]).sub_(newton_schulz(update), alpha=lr * muon_scale(case, w.shape))


def library_muon(case, init, grads, lrs):
    """torch.optim.Muon with its bfloat16 replaced by double; it clamps the norm instead of adding eps."""
    adjust = "match_rms_adamw" if case["scale"] == "match_rms" else "original"
    w = torch.nn.Parameter(init.clone())
    optimizer = torch.optim.Muon(
        [w],
        lr=1.0,
        momentum=case["momentum"],
        nesterov=case["nesterov"],
        weight_decay=case["weight_decay"],
        adjust_lr_fn=adjust,
    )
    saved, torch.bfloat16 = torch.bfloat16, torch.float64
    try:
        for lr, g in zip(lrs, grads):
            optimizer.param_groups[0]["lr"] = lr
            w.grad = g.clone()
            optimizer.step()
    finally:
        torch.bfloat16 = saved
    return w.detach()


def make_muon():
    rng = np.random.default_rng(21)
    lrs = [nanogpt_lr(t, 0.02, 5, STEPS, 0.002) for t in range(STEPS)]
    init = {n: float32_values(rng, s) for n, s in MUON_SHAPES.items()}
    # A drift that stays plus noise, as real gradients have.
    grads = {
        n: float32_values(rng, (1, *s)) + float32_values(rng, (STEPS, *s), 0.5)
        for n, s in MUON_SHAPES.items()
    }
    grads = {n: g.float().double() for n, g in grads.items()}
    out = {f"init.{n}": w.float() for n, w in init.items()}
    out.update({f"grad.{n}": g.float() for n, g in grads.items()}, lr=torch.tensor(lrs, dtype=torch.float64))
    agreement = {}
    for name, case in MUON_CASES.items():
        for n in MUON_SHAPES:
            w, m = init[n].clone(), torch.zeros_like(init[n])
            for t in range(STEPS):
                muon_step(w, m, grads[n][t], lrs[t], case, t)
                if t + 1 in KEPT:
                    out[f"{name}.param.{n}.{t + 1}"] = w.clone()
            out[f"{name}.momentum.{n}"] = m
            if w.dim() == 2 and "warmup" not in case:
                difference = max_rel(library_muon(case, init[n], grads[n], lrs), w)
                agreement[name] = max(agreement.get(name, 0.0), difference)
    assert max(agreement.values()) < 1e-6, agreement
    save_tensors(FOLDER / "muon.safetensors", out)
    notes = {"steps": STEPS, "seed": 21, "cases": MUON_CASES, "coefficients": QUINTIC, "eps": 1e-7}
    save_json(FOLDER / "muon.json", {**notes, "torch_optim_muon_max_rel": agreement}, "make_optim.py")
    print("muon", agreement)


# MuonClip -----------------------------------------------------------------------------------------

# Query heads, key heads, their width, model width, tokens.
CLIP_CASES = {
    "mha": dict(heads=3, kv_heads=3, alpha=0.5, threshold=6.0),
    "gqa": dict(heads=4, kv_heads=2, alpha=0.5, threshold=6.0),
    "uneven": dict(heads=4, kv_heads=1, alpha=0.25, threshold=4.0),
}
CLIP_HEAD, CLIP_WIDTH, CLIP_TOKENS = 4, 12, 7


def clip_logits(wq, wk, x, case):
    """Causal attention logits [heads, T, T] of the fixed inputs x; masked ones are -inf."""
    q = (x @ wq.T).view(len(x), case["heads"], CLIP_HEAD)
    k = (x @ wk.T).view(len(x), case["kv_heads"], CLIP_HEAD)
    k = k.repeat_interleave(case["heads"] // case["kv_heads"], dim=1)
    logits = torch.einsum("thd,shd->hts", q, k) / math.sqrt(CLIP_HEAD)
    return logits.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -math.inf)


def clip_case(case, rng, out, name):
    """Kimi K2's MuonClip: a Muon step, then for each head with S_max > tau: gamma = tau / S_max, W_q *= gamma^alpha,
    W_k *= gamma^(1 - alpha). Where query heads share a key head, the key takes its group's smallest gamma and each
    query the rest of its own."""
    group = case["heads"] // case["kv_heads"]
    shape_q, shape_k = (case["heads"] * CLIP_HEAD, CLIP_WIDTH), (case["kv_heads"] * CLIP_HEAD, CLIP_WIDTH)
    x = float32_values(rng, (CLIP_TOKENS, CLIP_WIDTH))
    wq, wk = float32_values(rng, shape_q, 0.5), float32_values(rng, shape_k, 0.5)
    # Gradients that keep pushing in one direction, so that logits grow and are clipped again and again.
    grads = {
        n: (float32_values(rng, (1, *s)) + float32_values(rng, (STEPS, *s), 0.3)).float().double()
        for n, s in (("q", shape_q), ("k", shape_k))
    }
    out.update({f"{name}.x": x.float(), f"{name}.init.q": wq.float(), f"{name}.init.k": wk.float()})
    out.update({f"{name}.grad.{n}": g.float() for n, g in grads.items()})
    muon = MUON_CASES["sum_nesterov"]
    mq, mk, clips, seen = torch.zeros_like(wq), torch.zeros_like(wk), 0, []
    for t in range(STEPS):
        top = clip_logits(wq, wk, x, case).amax(dim=(1, 2))  # what this step's forward pass reports
        seen.append(top)
        muon_step(wq, mq, grads["q"][t], 0.05, muon, t)
        muon_step(wk, mk, grads["k"][t], 0.05, muon, t)
        gamma = torch.where(top > case["threshold"], case["threshold"] / top, torch.ones_like(top))
        clips += int((gamma < 1).sum())
        for key_head in range(case["kv_heads"]):
            heads = range(key_head * group, (key_head + 1) * group)
            share = min(gamma[h] for h in heads) ** (1 - case["alpha"])
            wk[key_head * CLIP_HEAD : (key_head + 1) * CLIP_HEAD] *= share
            for h in heads:
                wq[h * CLIP_HEAD : (h + 1) * CLIP_HEAD] *= gamma[h] / share
        if t + 1 in KEPT:
            out[f"{name}.q.{t + 1}"], out[f"{name}.k.{t + 1}"] = wq.clone(), wk.clone()
    out[f"{name}.max_logit"] = torch.stack(seen)
    return clips


def make_muonclip():
    rng = np.random.default_rng(61)
    out, clips = {}, {}
    for name, case in CLIP_CASES.items():
        clips[name] = clip_case(case, rng, out, name)
    assert min(clips.values()) > 20, clips
    save_tensors(FOLDER / "muonclip.safetensors", out)
    notes = {"steps": STEPS, "seed": 61, "cases": CLIP_CASES, "head_width": CLIP_HEAD, "lr": 0.05, "clips": clips}
    save_json(FOLDER / "muonclip.json", notes, "make_optim.py")
    print("muonclip", clips)


def make_newton_schulz():
    """The iteration on random, low-rank, zero and badly scaled matrices, and its scalar map on singular
    values."""
    rng = np.random.default_rng(31)
    low_rank = float32_values(rng, (16, 3)) @ float32_values(rng, (3, 11))
    inputs = {
        "wide": float32_values(rng, (7, 19)),
        "tall": float32_values(rng, (33, 8)),
        "square": float32_values(rng, (24, 24)),
        "row": float32_values(rng, (1, 13)),
        "low_rank": low_rank.float().double(),
        "zero": torch.zeros(5, 4).double(),
        "tiny": float32_values(rng, (6, 6), 1e-12),
        "large": float32_values(rng, (6, 9), 1e12),
    }
    out = {}
    for n, g in inputs.items():
        out[f"input.{n}"], out[f"output.{n}"] = g.float(), newton_schulz(g.float().double())
    sigma = torch.cat([torch.logspace(-4, 0, 400).double(), torch.tensor([0.003, 1.0]).double()])
    value = sigma.clone()
    a, b, c = QUINTIC
    for _ in range(5):
        value = a * value + b * value**3 + c * value**5
    out.update(map_input=sigma, map_output=value)
    inside = value[(sigma >= 0.003)]
    save_tensors(FOLDER / "newton_schulz.safetensors", out)
    notes = {"seed": 31, "map_range_from_0.003": [inside.min().item(), inside.max().item()]}
    save_json(FOLDER / "newton_schulz.json", notes, "make_optim.py")
    print("newton_schulz", notes)


# Balancing bias -----------------------------------------------------------------------------------


def make_balancing_bias():
    """AdamW on the error f_i - 1/E of 16 experts; the skip class (index 16) stays at -1. A second expert set
    follows DeepSeek-V3's rule: bias += rate * sign(mean load - load)."""
    rng = np.random.default_rng(41)
    experts, tokens, lr = 16, 1000, 1e-3
    counts = np.stack(
        [rng.multinomial(tokens, rng.dirichlet(np.linspace(0.3, 3, experts))) for _ in range(STEPS)]
    )
    counts = torch.from_numpy(counts)
    bias = torch.nn.Parameter(float32_values(rng, (experts,), 0.01))
    sign_bias = bias.detach().clone()
    out = {"counts": counts.int(), "init": torch.cat([bias.detach(), torch.tensor([-1.0]).double()]).float()}
    optimizer = torch.optim.AdamW(
        [bias], lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, foreach=False
    )
    history, sign_history = [], []
    for t in range(STEPS):
        fraction = counts[t].double() / counts[t].sum()
        bias.grad = fraction - 1.0 / experts
        optimizer.step()
        history.append(torch.cat([bias.detach().clone(), torch.tensor([-1.0]).double()]))
        load = counts[t].double()
        sign_bias += 1e-3 * torch.sign(load.mean() - load)
        sign_history.append(sign_bias.clone())
    out.update(bias=torch.stack(history), sign_bias=torch.stack(sign_history))
    save_tensors(FOLDER / "balancing_bias.safetensors", out)
    notes = {"seed": 41, "lr": lr, "betas": [0.9, 0.999], "eps": 1e-8, "sign_rate": 1e-3, "steps": STEPS}
    save_json(FOLDER / "balancing_bias.json", notes, "make_optim.py")


# Schedules ----------------------------------------------------------------------------------------


def library_multipliers(make, total, **settings):
    """The multiplier of a scheduler class or function at steps 0 .. total."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer, **settings)
    values = []
    for _ in range(total + 1):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return values


def make_schedules():
    """Multiplier of the peak rate at steps 0 .. total (inclusive). Warm-up is nanoGPT's (step + 1) / (warmup
    + 1) everywhere; after it the values are the named library's."""
    total, warmup = 200, 13
    hf_args = dict(num_warmup_steps=warmup, num_training_steps=total)
    wsd = dict(num_warmup_steps=warmup, num_decay_steps=40, num_stable_steps=total - warmup - 40)
    cases = []

    def add(name, source, settings, values, warmup_steps=warmup):
        values = [(t + 1) / (warmup_steps + 1) if t < warmup_steps else v for t, v in enumerate(values)]
        assert len(values) == total + 1
        head = {"name": name, "source": source, "total_steps": total, "warmup_steps": warmup_steps}
        cases.append({**head, **settings, "values": values})

    values = [nanogpt_lr(t, 1.0, warmup, total, 0.1) for t in range(total + 1)]
    add("cosine", "nanoGPT get_lr", {"kind": "cosine", "min_ratio": 0.1}, values)
    values = library_multipliers(hf.get_cosine_schedule_with_warmup, total, **hf_args)
    add(
        "cosine_to_zero",
        "transformers get_cosine_schedule_with_warmup",
        {"kind": "cosine", "min_ratio": 0.0},
        values,
    )
    values = library_multipliers(hf.get_linear_schedule_with_warmup, total, **hf_args)
    add(
        "linear", "transformers get_linear_schedule_with_warmup", {"kind": "linear", "min_ratio": 0.0}, values
    )
    for shape, library_shape in (("linear", "linear"), ("cosine", "cosine"), ("sqrt", "1-sqrt")):
        values = library_multipliers(
            hf.get_wsd_schedule, total, decay_type=library_shape, min_lr_ratio=0.05, **wsd
        )
        settings = {"kind": "wsd", "decay_steps": 40, "decay_shape": shape, "min_ratio": 0.05}
        add(f"wsd_{shape}", f"transformers get_wsd_schedule({library_shape})", settings, values)
    steps = torch.optim.lr_scheduler
    values = library_multipliers(steps.MultiStepLR, total, milestones=[60, 150], gamma=0.1)
    hold = [
        dict(until=0.3, to=1.0, shape="hold"),
        dict(until=0.75, to=0.1, shape="hold"),
        dict(until=1.0, to=0.01, shape="hold"),
    ]
    add("multistep", "torch MultiStepLR", {"kind": "piecewise", "segments": hold}, values, 0)
    xs, ys = (0, 50, 120, 200), (1.0, 1.0, 0.4, 0.0)
    linear = [dict(until=x / total, to=y, shape="linear") for x, y in zip(xs[1:], ys[1:])]
    values = np.interp(np.arange(total + 1), xs, ys).tolist()
    add("piecewise_linear", "numpy.interp", {"kind": "piecewise", "segments": linear}, values, 0)
    save_json(FOLDER / "schedules.json", {"cases": cases}, "make_optim.py")
    print("schedules", [(c["name"], c["values"][0], c["values"][-1]) for c in cases])


def main():
    out = {}
    for name, case in ADAMW_CASES.items():
        out.update((f"{name}.{key}", value) for key, value in adamw_case(case).items())
        norms = out[f"{name}.norm"]
        print("adamw", name, "norms", norms.min().item(), norms.max().item())
    save_tensors(FOLDER / "adamw.safetensors", out)
    notes = {
        "steps": STEPS,
        "cases": ADAMW_CASES,
        "decayed": ["matrix"],
        "clip": "min(1, max_norm / (norm + 1e-6))",
    }
    save_json(FOLDER / "adamw.json", notes, "make_optim.py")
    make_ademamix()
    make_muon()
    make_muonclip()
    make_newton_schulz()
    make_balancing_bias()
    make_schedules()


if __name__ == "__main__":
    main()
