"""One mixture-of-experts block per case, written densely in PyTorch (every expert sees every token, a [T, E] matrix of
weights says what counts), in double precision: output, losses and all gradients.

tests/fixtures/moe/blocks.json holds the settings of all cases and the provenance, blocks.safetensors the tensors, named
<case>.<tensor>. The objective is sum(y * d_y) + 0.02 aux + 0.003 z + 0.05 sequence. README.md lists the contents."""

import math

import numpy as np
import torch

from common import FIXTURES, double_precision, save_json, save_tensors

AUX, Z, SEQUENCE = 0.02, 0.003, 0.05
MIN_MARGIN = 2e-3
DEFAULTS = dict(
    documents=[13],
    width=11,
    experts=5,
    hidden=7,
    shared_hidden=0,
    latent=0,
    top_k=2,
    score="softmax_first",
    normalize=False,
    scale=1.0,
    groups=1,
    groups_kept=1,
    bias=False,
    activation="swiglu",
    selection="top_k",
    capacity_factor=0.0,
    drop="weight",
    pad_to_capacity=False,
    sequence=False,
)
CASES = {
    "latent": dict(latent=5, normalize=True, width=13),
    "latent_shared": dict(latent=6, shared_hidden=9, score="sigmoid", top_k=3, scale=1.7, bias=True),
    "geglu": dict(activation="geglu", shared_hidden=5, score="softmax_last", scale=0.6),
    "sequence_softmax": dict(sequence=True, documents=[7, 1, 12], normalize=True, experts=6, top_k=3),
    "sequence_sigmoid": dict(
        sequence=True,
        documents=[9, 14],
        score="sigmoid",
        normalize=True,
        scale=2.5,
        experts=12,
        groups=4,
        groups_kept=2,
        top_k=4,
        bias=True,
        width=17,
    ),
    "capacity_weight": dict(documents=[8, 13], capacity_factor=0.7, normalize=True),
    "capacity_position": dict(
        documents=[19], capacity_factor=1.1, drop="position", score="sigmoid", normalize=True, bias=True, top_k=3
    ),
    "capacity_padded": dict(documents=[22], capacity_factor=0.9, pad_to_capacity=True, experts=7, shared_hidden=4),
    "sinkhorn_top1": dict(documents=[23], selection="sinkhorn", score="sigmoid", top_k=1, experts=6),
    "sinkhorn_top2": dict(documents=[18], selection="sinkhorn", latent=5),
    "expert_choice": dict(documents=[6, 15], selection="expert_choice", capacity_factor=1.0),
    "expert_choice_sigmoid": dict(
        documents=[17], selection="expert_choice", capacity_factor=1.4, score="sigmoid", top_k=1, scale=2.0
    ),
}


def gaps(values, k):
    """Distance between the k-th and the next value along the last axis; infinite where all are taken."""
    ordered = values.sort(-1, descending=True).values
    return (ordered[..., k - 1] - ordered[..., k]).min().item() if k < values.shape[-1] else math.inf


def scores_of(c, logits):
    """Scores, and their shares of the sum, which the balance losses see."""
    if c["score"] == "sigmoid":
        s = torch.sigmoid(logits)
        return s, s / s.sum(-1, keepdim=True)
    s = logits.softmax(-1)
    return s, s


def top_mask(keys, k, margins):
    margins.append(gaps(keys, k))
    return torch.zeros_like(keys).scatter(-1, keys.topk(k, -1).indices, 1.0).bool()


def token_choice(c, keys, margins):
    """[T, E]: top-k experts of each token within its best groups."""
    if c["groups_kept"] < c["groups"]:
        grouped = keys.view(len(keys), c["groups"], -1)
        rating = grouped.topk(c["top_k"] // c["groups_kept"], -1).values.sum(-1)
        kept = top_mask(rating, c["groups_kept"], margins)
        keys = grouped.masked_fill(~kept[..., None], -100.0).flatten(1)
    return top_mask(keys, c["top_k"], margins)


def sinkhorn(logits, tolerance=1e-4, epsilon=1e-8):
    """Megatron-LM's balancing of exp(logits): rows sum to 1 / T, columns to 1 / E."""
    cost = torch.exp(logits)
    tokens, experts = cost.shape
    d0, d1, change = torch.ones(tokens), torch.ones(experts), 1e9
    while change > tolerance:
        d0 = 1 / tokens / ((d1 * cost).sum(1) + epsilon)
        new = 1 / experts / ((d0[:, None] * cost).sum(0) + epsilon)
        change, d1 = (new - d1).abs().mean().item(), new
    return d1 * cost * d0[:, None]


def capacity_of(c, tokens):
    return min(tokens, math.ceil(tokens * c["top_k"] / c["experts"] * c["capacity_factor"]))


def choice_of(c, logits, scores, bias, margins):
    """[T, E]: who works for whom, before any drop."""
    if c["selection"] == "sinkhorn":
        plan = sinkhorn(logits)
        return top_mask(plan / plan.max(-1, keepdim=True).values, c["top_k"], margins)
    if c["selection"] == "expert_choice":
        return top_mask(scores.T.contiguous(), capacity_of(c, len(scores)), margins).T
    return token_choice(c, (logits if c["score"] == "softmax_last" else scores) + bias, margins)


def drop(c, weights, chosen, margins):
    """[T, E]: which choices an expert of limited capacity keeps."""
    if c["drop"] == "position":
        return chosen & (chosen.long().cumsum(0) <= capacity_of(c, len(weights)))
    keys = weights.masked_fill(~chosen, -1.0).T.contiguous()
    kept = top_mask(keys, capacity_of(c, len(weights)), []).T & chosen
    ordered = keys.sort(-1, descending=True).values
    edge = capacity_of(c, len(weights))
    if edge < len(weights):
        margins += [(a - b).item() for a, b in zip(ordered[:, edge - 1], ordered[:, edge]) if b > 0]
    return kept


def weights_of(c, logits, scores, bias, margins):
    """[T, E]: the weight of every expert for every token, zero where it is not chosen; and the choice."""
    with torch.no_grad():
        chosen = choice_of(c, logits, scores, bias, margins)
    weights = torch.where(chosen, scores, torch.zeros_like(scores))
    if c["normalize"] or c["score"] == "softmax_last":
        weights = weights / (weights.sum(-1, keepdim=True) + (1e-20 if c["score"] == "sigmoid" else 0))
    weights = c["scale"] * weights
    if c["capacity_factor"] and c["selection"] == "top_k":
        with torch.no_grad():
            kept = drop(c, weights, chosen, margins)
        weights = torch.where(kept, weights, torch.zeros_like(weights))
    return weights, chosen


def balance(c, chosen, shares):
    """Where experts choose, a token has E places of which most stay empty."""
    t, k = len(shares), c["experts"] if c["selection"] == "expert_choice" else c["top_k"]
    return c["experts"] / (k * t**2) * (chosen.double().sum(0) * shares.sum(0)).sum()


def sequence_balance(c, logits, scores, shares, margins):
    """Mean over tokens of each document's loss; counts are the plain top-k of the scores."""
    plain = top_mask((logits if c["score"] == "softmax_last" else scores).detach(), c["top_k"], margins)
    total, begin = 0, 0
    for n in c["documents"]:
        rows = slice(begin, begin + n)
        total, begin = total + n * balance(c, plain[rows], shares[rows]), begin + n
    return total / begin


def mlp(c, gate_up, down, x):
    gate, up = (x @ gate_up.T).chunk(2, -1)
    if c["activation"] == "geglu":
        return (torch.nn.functional.gelu(gate, approximate="tanh") * up) @ down.T
    return (torch.nn.functional.silu(gate) * up) @ down.T


def block(c, w, margins):
    x = w["x"]
    logits = x @ w["router"].T
    scores, shares = scores_of(c, logits)
    weights, chosen = weights_of(c, logits, scores, w.get("bias", 0.0), margins)
    inner = x @ w["latent_down"].T if c["latent"] else x
    y = sum(weights[:, e : e + 1] * mlp(c, w["gate_up"][e], w["down"][e], inner) for e in range(c["experts"]))
    if c["latent"]:
        y = y @ w["latent_up"].T
    if c["shared_hidden"]:
        y = y + mlp(c, w["shared_gate_up"], w["shared_down"], x)
    losses = {"aux": balance(c, chosen, shares), "z": logits.logsumexp(-1).pow(2).mean()}
    if c["sequence"]:
        losses["sequence"] = sequence_balance(c, logits, scores, shares, margins)
    return y, weights, losses


def tensors_of(c, seed):
    rng = np.random.default_rng(seed)
    inner = c["latent"] or c["width"]
    tokens = sum(c["documents"])
    shapes = {
        "x": (tokens, c["width"]),
        "d_y": (tokens, c["width"]),
        "router": (c["experts"], c["width"]),
        "gate_up": (c["experts"], 2 * c["hidden"], inner),
        "down": (c["experts"], inner, c["hidden"]),
    }
    if c["latent"]:
        shapes.update(latent_down=(inner, c["width"]), latent_up=(c["width"], inner))
    if c["shared_hidden"]:
        shapes.update(
            shared_gate_up=(2 * c["shared_hidden"], c["width"]), shared_down=(c["width"], c["shared_hidden"])
        )
    if c["bias"]:
        shapes["bias"] = (c["experts"],)
    scale = {"x": 1.0, "d_y": 1.0, "bias": 0.1, "router": 1.5 / math.sqrt(c["width"])}
    values = {}
    for name, shape in shapes.items():
        n = rng.standard_normal(shape) * scale.get(name, 1.2 / math.sqrt(shape[-1]))
        values[name] = torch.from_numpy(n.astype(np.float32).astype(np.float64))
    return values


def generate(c, seed):
    """All tensors of a case, or None where a choice is too close for single precision."""
    w = tensors_of(c, seed)
    leaves = {n: v.clone().requires_grad_(n not in ("d_y", "bias")) for n, v in w.items()}
    margins = []
    y, weights, losses = block(c, leaves, margins)
    if min(margins) < MIN_MARGIN:
        return None
    objective = (y * w["d_y"]).sum() + AUX * losses["aux"] + Z * losses["z"]
    objective = objective + SEQUENCE * losses.get("sequence", 0.0)
    objective.backward()
    out = {n: v.float() if n != "d_y" else v for n, v in w.items()}
    out.update(y=y, weights=weights, **losses)
    out.update((f"grad.{n}", v.grad) for n, v in leaves.items() if v.requires_grad)
    return out


def main():
    tensors, notes = {}, {}
    for name, over in CASES.items():
        c, seed = {**DEFAULTS, **over}, 1
        with double_precision():
            while (result := generate(c, seed)) is None:
                seed += 1
        tensors.update((f"{name}.{n}", v) for n, v in result.items())
        notes[name] = {**c, "seed": seed}
    folder = FIXTURES / "moe"
    save_tensors(folder / "blocks.safetensors", tensors)
    save_json(folder / "blocks.json", {"aux": AUX, "z": Z, "sequence": SEQUENCE, "cases": notes}, "make_moe.py")


if __name__ == "__main__":
    main()
