#!/usr/bin/env python3
"""One training step of a small GPT in PyTorch, on the CPU or with --device=cuda, set up as an experienced user would.

A step: batch in memory, forward, mean cross entropy, backward, clipping at 1, AdamW (decay on matrices),
gradients cleared. Prints one JSON object: median, fastest and slowest step in ms, settings, library, the
median processor time (all threads; with --threads 1 it compares programs on a busy machine) and the peak of
resident memory, beside what was resident when the libraries were loaded; of a GPU the most that was allocated there.
--variant all runs every variant in its own process and prints one line each. Needs the packages of
tools/oracle/requirements.txt; the compile variants need a C++ compiler and about a minute at first.
--experts makes every feed-forward part a mixture: rows sorted by expert, a product for each expert's rows, or with --grouped (bf16)
one product for the rows of all experts, which asks the host for nothing.
--paced: after the warm-up a line {"ready": true, ...}, then one step for each line of standard input, as a line of JSON.

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
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--optimizer", choices=("fused", "foreach"), default="fused")
    p.add_argument("--bias", action="store_true", help="biases in linear layers and norms")
    for name, value in dict(layers=6, heads=6, width=384, context=256, batch=12, vocabulary=65).items():
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--experts", type=int, default=0, help="0: dense, 4 x width hidden")
    p.add_argument("--top", type=int, default=2, help="experts of a token")
    p.add_argument("--grouped", action="store_true", help="experts by torch's grouped_mm")
    p.add_argument("--hidden", type=int, default=0, help="of an expert; default: 4 x width / top")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--steps", type=int, default=15)
    p.add_argument("--losses", action="store_true", help="also print the loss of each step")
    p.add_argument("--paced", action="store_true", help="a step for each line of standard input")
    return p.parse_args()


def peak_bytes(t):
    """The most memory so far: of the GPU, or resident."""
    return t.torch.cuda.max_memory_allocated() if t.a.device == "cuda" else resident("VmHWM")


def resident(what):
    """Bytes of VmRSS (now) or VmHWM (the most so far)."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(what + ":"))


def make_experts(a, torch, nn, F):
    hidden = a.hidden or 4 * a.width // a.top

    class Experts(nn.Module):
        """A weight for each expert: slices of a stacked one would each have a gradient of the whole."""

        def __init__(self):
            super().__init__()
            self.router = nn.Linear(a.width, a.experts, bias=False)
            self.up = nn.ParameterList(nn.Parameter(torch.empty(hidden, a.width)) for _ in range(a.experts))
            self.down = nn.ParameterList(nn.Parameter(torch.empty(a.width, hidden)) for _ in range(a.experts))

        def experts(self, rows, expert):
            """Of rows in the order of their experts."""
            counts = torch.bincount(expert, minlength=a.experts).tolist()
            return torch.cat([F.linear(F.gelu(F.linear(p, u)), d) for p, u, d in zip(rows.split(counts), self.up, self.down)])

        def forward(self, x):
            rows = x.reshape(-1, a.width)
            weights, chosen = self.router(rows).float().softmax(-1).topk(a.top, -1)
            weights = weights / weights.sum(-1, keepdim=True)
            expert = chosen.reshape(-1)
            order = expert.argsort(stable=True)
            token = order // a.top
            out = self.experts(rows[token], expert)
            out = (out * weights.reshape(-1)[order, None]).to(x.dtype)
            return torch.zeros_like(rows).index_add(0, token, out).view(x.shape)

    class GroupedExperts(Experts):
        """Stacked weights, whose products find the ends of the experts' rows on the device."""

        def __init__(self):
            super().__init__()
            self.up = nn.Parameter(torch.empty(a.experts, a.width, hidden))
            self.down = nn.Parameter(torch.empty(a.experts, hidden, a.width))

        def experts(self, rows, expert):
            ends = (expert[:, None] == torch.arange(a.experts, device=rows.device)).sum(0).cumsum(0).to(torch.int32)
            bf16 = torch.bfloat16
            return torch._grouped_mm(F.gelu(torch._grouped_mm(rows.to(bf16), self.up.to(bf16), offs=ends)), self.down.to(bf16), offs=ends)

    return GroupedExperts if a.grouped else Experts


def make_model(a, torch, nn, F):
    Experts = make_experts(a, torch, nn, F)

    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(a.width, 4 * a.width, bias=a.bias)
            self.down = nn.Linear(4 * a.width, a.width, bias=a.bias)

        def forward(self, x):
            return self.down(F.gelu(self.up(x)))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = (nn.LayerNorm(a.width, bias=a.bias) for _ in range(2))
            self.qkv = nn.Linear(a.width, 3 * a.width, bias=a.bias)
            self.out = nn.Linear(a.width, a.width, bias=a.bias)
            self.mlp = Experts() if a.experts else Dense()

        def forward(self, x):
            B, T, D = x.shape
            q, k, v = (
                t.view(B, T, a.heads, D // a.heads).transpose(1, 2)
                for t in self.qkv(self.norm1(x)).split(D, 2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
            return x + self.mlp(self.norm2(x))

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


class Training:
    """A model and its optimizer."""

    def __init__(self, a):
        os.environ.setdefault("OMP_NUM_THREADS", str(a.threads))
        import torch
        import torch.nn.functional as F
        from torch import nn

        self.a, self.torch = a, torch
        torch.set_num_threads(a.threads)
        torch.manual_seed(0)
        self.libraries_bytes = resident("VmRSS")
        self.model = make_model(a, torch, nn, F).to(a.device)
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        vectors = [p for p in self.model.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), **{a.optimizer: True})
        self.run = torch.compile(self.model) if a.variant.startswith("compile") else self.model
        bf16 = a.variant.endswith("bf16")
        self.context = (lambda: torch.autocast(a.device, torch.bfloat16)) if bf16 else contextlib.nullcontext
        self.parameters = sum(p.numel() for p in self.model.parameters())

    def step(self):
        a, torch = self.a, self.torch
        tokens = torch.randint(a.vocabulary, (a.batch, a.context + 1))
        x, y = tokens[:, :-1].contiguous().to(a.device), tokens[:, 1:].contiguous().to(a.device)
        begin, busy = time.perf_counter(), time.process_time()
        with self.context():
            loss = self.run(x, y)
        loss.backward()
        middle = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        value, end = loss.item(), time.perf_counter()
        return {"seconds": end - begin, "update_seconds": end - middle, "processor_seconds": time.process_time() - busy, "loss": value}


def facts(t):
    a = t.a
    return {
        "peer": "torch",
        "version": t.torch.__version__,
        "variant": a.variant,
        "optimizer": a.optimizer,
        "device": t.torch.cuda.get_device_name() if a.device == "cuda" else "cpu",
        "threads": a.threads,
        "parameters": t.parameters,
        "tokens_per_step": a.batch * a.context,
        "libraries_bytes": t.libraries_bytes,
    }


def measure(a):
    t = Training(a)
    steps = [t.step() for _ in range(a.warmup + a.steps)]
    times, processor = ([1e3 * s[key] for s in steps[a.warmup:]] for key in ("seconds", "processor_seconds"))
    result = {
        **facts(t),
        "median_ms": round(statistics.median(times), 2),
        "min_ms": round(min(times), 2),
        "max_ms": round(max(times), 2),
        "processor_ms": round(statistics.median(processor), 2),
        "steps": a.steps,
        "peak_bytes": peak_bytes(t),
    }
    return {**result, "losses": [s["loss"] for s in steps]} if a.losses else result


def paced(a):
    t = Training(a)
    for _ in range(a.warmup):
        t.step()
    print(json.dumps({"ready": True, **facts(t)}), flush=True)
    for _ in sys.stdin:
        s = t.step()
        s |= {"tokens_per_second": a.batch * a.context / s["seconds"], "peak_bytes": peak_bytes(t)}
        print(json.dumps(s), flush=True)


def main():
    a = arguments()
    if a.paced:
        return paced(a)
    if a.variant != "all":
        print(json.dumps(measure(a)), flush=True)
        return
    rest = [x for i, x in enumerate(sys.argv[1:], 1) if x != "--variant" and sys.argv[i - 1] != "--variant"]
    for variant in VARIANTS:
        subprocess.run([sys.executable, __file__, *rest, "--variant", variant], check=True)


if __name__ == "__main__":
    main()
