"""nanoGPT's small CPU configuration on tinyshakespeare by characters, in PyTorch, from weights and batches
that anybody can reproduce -> tests/fixtures/models/nanogpt_shakespeare.json.

The model and recipe are karpathy/nanoGPT's config/train_shakespeare_char.py with the README's CPU arguments:
4 layers, 4 heads, width 128, context 64, batch 12, 2000 steps, dropout 0, no biases, tied embeddings, exact
GELU; AdamW 1e-3 to 1e-4 (cosine after 100 warm-up steps), betas 0.9 and 0.99, decay 0.1 on matrices, clipping
at 1.

Rules, with Random of src/base/philox.h:
  weight i of a tensor = float32(std * Random(seed, init, hash64(name)).normal(i)), row-major [out, in], norms
  1; std 0.02, for c_proj.weight 0.02 / sqrt(2 * layers). Batch row r of step t starts at
  Random(seed, data_order, 0).below(12 t + r, train tokens - 64).
Text: characters sorted by code point are the vocabulary; the first int(0.9 n) of them train, the rest
validate. The validation loss is the mean over all n_val - 1 predictions in consecutive windows of 64 tokens
(the last is shorter)."""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import xxhash

import philox
from common import FIXTURES, save_json
from make_optim import nanogpt_lr

LAYERS, HEADS, WIDTH, CONTEXT, BATCH, STEPS = 4, 4, 128, 64, 12, 2000
SETTINGS = dict(lr=1e-3, min_lr=1e-4, warmup=100, betas=(0.9, 0.99), weight_decay=0.1, clip=1.0)
SEEDS = (1, 2, 3)


def shapes(vocabulary):
    out = {"transformer.wte.weight": (vocabulary, WIDTH), "transformer.wpe.weight": (CONTEXT, WIDTH)}
    for i in range(LAYERS):
        p = f"transformer.h.{i}."
        out[p + "ln_1.weight"] = (WIDTH,)
        out[p + "attn.c_attn.weight"] = (3 * WIDTH, WIDTH)
        out[p + "attn.c_proj.weight"] = (WIDTH, WIDTH)
        out[p + "ln_2.weight"] = (WIDTH,)
        out[p + "mlp.c_fc.weight"] = (4 * WIDTH, WIDTH)
        out[p + "mlp.c_proj.weight"] = (WIDTH, 4 * WIDTH)
    out["transformer.ln_f.weight"] = (WIDTH,)
    return out


def initial_weights(seed, vocabulary):
    weights = {}
    for name, shape in shapes(vocabulary).items():
        std = 0.02 / math.sqrt(2 * LAYERS) if name.endswith("c_proj.weight") else 0.02
        if len(shape) == 1:
            values = np.ones(shape, np.float32)
        else:
            count = shape[0] * shape[1]
            values = (std * philox.normal(seed, philox.INIT, philox.stream_of(name), count)).astype(
                np.float32
            )
        weights[name] = torch.from_numpy(values.reshape(shape)).clone()
    return weights


def forward(w, ids):
    """Logits [B, T, V]."""
    B, T = ids.shape
    norm = lambda x, name: F.layer_norm(x, (WIDTH,), w[name], None, 1e-5)
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:T]
    for i in range(LAYERS):
        p = f"transformer.h.{i}."
        qkv = F.linear(norm(x, p + "ln_1.weight"), w[p + "attn.c_attn.weight"])
        q, k, v = (t.view(B, T, HEADS, WIDTH // HEADS).transpose(1, 2) for t in qkv.split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, WIDTH)
        x = x + F.linear(y, w[p + "attn.c_proj.weight"])
        y = F.gelu(F.linear(norm(x, p + "ln_2.weight"), w[p + "mlp.c_fc.weight"]))
        x = x + F.linear(y, w[p + "mlp.c_proj.weight"])
    return F.linear(norm(x, "transformer.ln_f.weight"), w["transformer.wte.weight"])


def cross_entropy(w, x, y, reduction="mean"):
    return F.cross_entropy(forward(w, x).flatten(0, 1), y.flatten(), reduction=reduction)


@torch.no_grad()
def validation_loss(w, data):
    n = len(data) - 1
    full = n // CONTEXT
    x, y = data[: full * CONTEXT].view(full, CONTEXT), data[1 : full * CONTEXT + 1].view(full, CONTEXT)
    total = sum(cross_entropy(w, a, b, "sum").double().item() for a, b in zip(x.split(64), y.split(64)))
    if full * CONTEXT < n:
        total += cross_entropy(
            w, data[None, full * CONTEXT : n], data[None, full * CONTEXT + 1 :], "sum"
        ).item()
    return total / n


def train(seed, train_data, val_data, vocabulary, steps, dtype=torch.float32):
    w = {n: p.to(dtype).requires_grad_() for n, p in initial_weights(seed, vocabulary).items()}
    starts = philox.below(seed, philox.DATA_ORDER, 0, STEPS * BATCH, len(train_data) - CONTEXT).reshape(
        STEPS, BATCH
    )
    groups = [
        {"params": [p for p in w.values() if p.dim() == 2], "weight_decay": SETTINGS["weight_decay"]},
        {"params": [p for p in w.values() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=SETTINGS["lr"], betas=SETTINGS["betas"])
    losses, norms = [], []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = nanogpt_lr(step, SETTINGS["lr"], SETTINGS["warmup"], STEPS, SETTINGS["min_lr"])
        x = torch.stack([train_data[i : i + CONTEXT] for i in starts[step]])
        y = torch.stack([train_data[i + 1 : i + 1 + CONTEXT] for i in starts[step]])
        loss = cross_entropy(w, x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), SETTINGS["clip"]).item())
        optimizer.step()
        losses.append(loss.item())
    return w, starts, losses, norms


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("text", type=Path, help="tinyshakespeare's input.txt")
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = args.text.read_text()
    characters = sorted(set(text))
    ids = torch.tensor([characters.index(c) for c in text])
    split = int(len(ids) * 0.9)
    train_data, val_data = ids[:split], ids[split:]
    runs = []
    for seed in SEEDS:
        begin = time.time()
        _, _, exact, exact_norms = train(seed, train_data, val_data, len(characters), 20, torch.float64)
        w, starts, losses, norms = train(seed, train_data, val_data, len(characters), STEPS)
        initial = initial_weights(seed, len(characters))
        runs.append(
            {
                "seed": seed,
                "batch_starts": starts[:20].tolist(),
                "first_weights": {n: p.flatten()[:2].tolist() for n, p in initial.items()},
                "initial_validation_loss": validation_loss(initial, val_data),
                "losses": losses[:20],
                "losses_double": exact,
                "grad_norms_double": exact_norms,
                "losses_every_100": losses[99::100],
                "validation_loss": validation_loss(w, val_data),
            }
        )
        print(seed, losses[:3], runs[-1]["validation_loss"], f"{time.time() - begin:.0f} s", flush=True)
    mean = sum(r["validation_loss"] for r in runs) / len(runs)
    notes = {
        "text_xxh128": xxhash.xxh3_128_hexdigest(text.encode()),
        "text_bytes": len(text.encode()),
        "train_tokens": split,
        "validation_tokens": len(val_data),
        "vocabulary": "".join(characters),
        "model": dict(layers=LAYERS, heads=HEADS, width=WIDTH, context=CONTEXT, batch=BATCH, steps=STEPS),
        "settings": SETTINGS,
        "parameters": sum(math.prod(s) for s in shapes(len(characters)).values()),
        "mean_validation_loss": mean,
    }
    save_json(FIXTURES / "models" / "nanogpt_shakespeare.json", {**notes, "runs": runs}, "make_nanogpt.py")
    print("mean validation loss", mean)


if __name__ == "__main__":
    main()
