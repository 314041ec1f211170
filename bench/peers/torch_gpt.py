#!/usr/bin/env python3
"""One training step of a small GPT in PyTorch on the CPU, set up as an experienced user would.

A step: batch in memory, forward, mean cross entropy, backward, clipping at 1, AdamW (decay on matrices),
gradients cleared. Prints one JSON object: median, fastest and slowest step in ms, settings, library, and the
median processor time (all threads; with --threads 1 it compares programs on a busy machine).
--variant all runs every variant in its own process and prints one line each. Needs the packages of
tools/oracle/requirements.txt; the compile variants need a C++ compiler and about a minute at first.

usage: torch_gpt.py [--variant eager|compile|eager-bf16|compile-bf16|all] [--threads 2] [--steps 15]"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time

VARIANTS = ("eager", "compile", "eager-bf16", "compile-bf16")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--variant", choices=(*VARIANTS, "all"), default="all")
    p.add_argument("--optimizer", choices=("fused", "foreach"), default="fused")
    p.add_argument("--bias", action="store_true", help="biases in linear layers and norms")
    for name, value in dict(layers=6, heads=6, width=384, context=256, batch=12, vocabulary=65).items():
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--steps", type=int, default=15)
    p.add_argument("--losses", action="store_true", help="also print the loss of each step")
    return p.parse_args()


def make_model(a, torch, nn, F):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = (nn.LayerNorm(a.width, bias=a.bias) for _ in range(2))
            self.qkv = nn.Linear(a.width, 3 * a.width, bias=a.bias)
            self.out = nn.Linear(a.width, a.width, bias=a.bias)
            self.up = nn.Linear(a.width, 4 * a.width, bias=a.bias)
            self.down = nn.Linear(4 * a.width, a.width, bias=a.bias)

        def forward(self, x):
            B, T, D = x.shape
            q, k, v = (
                t.view(B, T, a.heads, D // a.heads).transpose(1, 2)
                for t in self.qkv(self.norm1(x)).split(D, 2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(a.vocabulary, a.width)
            self.positions = nn.Embedding(a.context, a.width)
            self.blocks = nn.ModuleList(Block() for _ in range(a.layers))
            self.norm = nn.LayerNorm(a.width, bias=a.bias)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, 0.0, 0.02)

        def forward(self, x, y):
            h = self.tokens(x) + self.positions.weight[: x.shape[1]]
            for block in self.blocks:
                h = block(h)
            logits = F.linear(self.norm(h), self.tokens.weight)
            return F.cross_entropy(logits.float().view(-1, a.vocabulary), y.view(-1))

    return Gpt()


def measure(a):
    os.environ.setdefault("OMP_NUM_THREADS", str(a.threads))
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = make_model(a, torch, nn, F)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), **{a.optimizer: True})
    run = torch.compile(model) if a.variant.startswith("compile") else model
    bf16 = a.variant.endswith("bf16")
    context = (lambda: torch.autocast("cpu", torch.bfloat16)) if bf16 else contextlib.nullcontext
    times, processor, losses = [], [], []
    for step in range(a.warmup + a.steps):
        tokens = torch.randint(a.vocabulary, (a.batch, a.context + 1))
        x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        begin, busy = time.perf_counter(), time.process_time()
        with context():
            loss = run(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if step >= a.warmup:
            times.append(1e3 * (time.perf_counter() - begin))
            processor.append(1e3 * (time.process_time() - busy))
    result = {
        "peer": "torch",
        "version": torch.__version__,
        "variant": a.variant,
        "optimizer": a.optimizer,
        "threads": a.threads,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_per_step": a.batch * a.context,
        "median_ms": round(statistics.median(times), 2),
        "min_ms": round(min(times), 2),
        "max_ms": round(max(times), 2),
        "processor_ms": round(statistics.median(processor), 2),
        "steps": a.steps,
    }
    return {**result, "losses": losses} if a.losses else result


def main():
    a = arguments()
    if a.variant != "all":
        print(json.dumps(measure(a)), flush=True)
        return
    rest = [x for i, x in enumerate(sys.argv[1:], 1) if x != "--variant" and sys.argv[i - 1] != "--variant"]
    for variant in VARIANTS:
        subprocess.run([sys.executable, __file__, *rest, "--variant", variant], check=True)


if __name__ == "__main__":
    main()
