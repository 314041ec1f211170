"""Rows of inference beside llama.cpp, on random weights of GPT-2's shape, and the model of 8.8 billion on this machine."""

import json
import statistics

from . import process, row

# weights: ours, llama.cpp's, and the bars of decoding
KINDS = {"f32": ("f32", 1.0, 0.90), "bf16": ("bf16", 1.15, 0.85), "int8": ("q8_0", 1.0, None)}
PROMPT, NEW = 256, 64
READ = "the rate of reading memory over the bytes that a token reads"


def ours(context, weights, preset="gpt2", prompt=PROMPT, new=NEW):
    return process.json_of([context.ingot, "bench", "decode", preset, f"--weights={weights}", f"--prompt={prompt}", f"--new={new}"], context.threads)


def theirs(context, kind):
    """llama-bench: tokens per second of the prompt (head for its last token), and of new tokens."""
    program = context.peers.folder / "llama/bin/llama-bench"
    model = context.peers.folder / f"gguf/gpt2-{kind}.gguf"
    text = process.output([program, "-m", model, "-t", context.threads, "-p", PROMPT, "-n", NEW, "-r", 1, "-o", "json"], context.threads)
    runs = json.loads(text[text.index("["):])
    rate = {("new" if r["n_gen"] else "prompt"): r["avg_ts"] for r in runs}
    return rate | {"version": f"llama.cpp {runs[0].get('build_number', '')} {runs[0].get('build_commit', '')}"}


def missing(context):
    if not context.peers.folder:
        return context.peers.missing("")
    for path in ("llama/bin/llama-bench", "gguf/gpt2-f32.gguf"):
        if not (context.peers.folder / path).exists():
            return f"no {path} in the folder of --peers (bench/peers/setup DIR llama)"
    return ""


def decode(context):
    """Prefill of 256 tokens, then 64 tokens one by one, ours and theirs in turns."""
    why = missing(context)
    mine, other = {k: [] for k in KINDS}, {k: [] for k in KINDS}
    for _ in range(context.trials_of(5)):
        for kind, (peer, _, _) in KINDS.items():
            mine[kind].append(ours(context, kind))
            if not why:
                other[kind].append(theirs(context, peer))
            context.say(f"{kind}: {mine[kind][-1]['decode_tokens_per_s']:.1f} tokens/s" + (f", llama.cpp {other[kind][-1]['new']:.1f}" if not why else ""))
    rows = []
    peer_rates = lambda what: {f"llama.cpp {KINDS[k][0]}": [t[what] for t in trials] for k, trials in other.items() if trials}
    version = [other["f32"][0]["version"]] if not why else []
    for kind, (peer, ratio, of_limit) in KINDS.items():
        name = f"llama.cpp {peer}"
        prefill = row.Target(f"prefill-{kind}", "tokens/s", "P over a token's FLOPs", bar_ratio=1.7 if kind == "f32" else None)
        new = row.Target(f"decode-{kind}", "tokens/s", READ, bar_ratio=ratio, bar_of_limit=of_limit)
        for target, rate, share, what in [(prefill, "prefill_tokens_per_s", "prefill_of_peak", "prompt"), (new, "decode_tokens_per_s", "decode_of_read", "new")]:
            values = [t[rate] for t in mine[kind]]
            # A prompt may be read with any weights: the fastest of theirs counts.
            against = {} if why else peer_rates(what) if what == "prompt" else {name: peer_rates(what)[name]}
            rows.append(row.make(target, values, against, why, [t[rate] / t[share] for t in mine[kind]], version))
    return rows


def eight_billion(context):
    """zaya1-8b in its exact shape with random weights: speed against what its active weights ask of memory and arithmetic, and memory."""
    rows = []
    for kind, memory in [("bf16", 20), ("int8", 12)]:
        t = ours(context, kind, "zaya1-8b", prompt=1024, new=16)
        rows.append(row.make(row.Target(f"8b-decode-{kind}", "tokens/s", READ, bar_of_limit=0.80), [t["decode_tokens_per_s"]], None, "no peer has this model",
                             [t["decode_tokens_per_s"] / t["decode_of_read"]]))
        rows.append(row.make(row.Target(f"8b-prefill-{kind}", "tokens/s", "P over a token's FLOPs", bar_of_limit=0.50), [t["prefill_tokens_per_s"]], None, "no peer has this model",
                             [t["prefill_tokens_per_s"] / t["prefill_of_peak"]]))
        rows.append(row.make(row.Target(f"8b-memory-{kind}", "GiB", "the target", bar_of_limit=1.0, less=True), [t["resident_bytes"] / 2**30], None, "no peer has this model", [memory]))
    return rows
