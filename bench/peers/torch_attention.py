#!/usr/bin/env python3
"""Causal attention of bf16 on a GPU in PyTorch, forward and backward, by cuDNN and by flash attention: what the rows of
`ingot bench device --parts=attention` are measured beside. Prints one JSON object: TFLOP/s of each shape, pass and library
(medians; FLOPs as Ingot counts them: the pairs that are not masked, 2 products forward, 5 backward), and of a product of
bf16, 8192 x 8192 x 8192, in the same seconds.

usage: torch_attention.py [--trials 15]"""

import argparse
import json
import statistics

SHAPES = ((16, 1024, 12, 12, 64), (4, 4096, 32, 8, 128))  # documents, tokens, heads, key heads, width


def seconds_of(torch, work, trials):
    """Median of the trials, each of ten calls."""
    for _ in range(3):
        work()
    times = []
    for _ in range(trials):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(10):
            work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e4)
    return statistics.median(times)


def attention_rows(torch, trials):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    rows = []
    for documents, tokens, heads, kv_heads, width in SHAPES:
        def tensor(count):
            return torch.randn(documents, count, tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)

        q, k, v = tensor(heads), tensor(kv_heads), tensor(kv_heads)
        product = 2 * documents * heads * width * tokens * (tokens + 1) / 2
        for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
            def forward():
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)

            row = {"shape": f"{documents} x {tokens} tokens, {heads}/{kv_heads} heads of {width}", "library": name}
            try:
                with sdpa_kernel(backend):
                    out = forward()
                    gradient = torch.randn_like(out)
                    row["forward_tflops"] = 2e-12 * product / seconds_of(torch, forward, trials)
                    row["backward_tflops"] = 5e-12 * product / seconds_of(
                        torch, lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), trials)
            except RuntimeError as reason:
                row["refused"] = str(reason).splitlines()[0]
            rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=15)
    trials = parser.parse_args().trials
    import torch

    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    peak = 2e-12 * size**3 / seconds_of(torch, lambda: a @ b.T, trials)
    facts = {"peer": "torch", "version": torch.__version__, "device": torch.cuda.get_device_name(), "product_tflops": peak}
    print(json.dumps({**facts, "rows": attention_rows(torch, trials)}), flush=True)


if __name__ == "__main__":
    main()
