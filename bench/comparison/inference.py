"""Rows of inference beside llama.cpp, on random weights of GPT-2's shape, and the model of 8.8 billion on this machine."""

import json
import statistics

from . import process, row

# weights: ours, llama.cpp's, and the bars of decoding
KINDS = {"f32": ("f32", 1.0, 0.90), "bf16": ("bf16", 1.15, 0.85), "int8": ("q8_0", 1.0, None)}
PROMPT, NEW = 256, 64
READ = "the rate of reading memory over the bytes that a token reads"
FLOPS = "P over a token's FLOPs"


def ours(context, weights, preset="gpt2", prompt=PROMPT, new=NEW):
    return process.json_of([context.ingot, "bench", "decode", preset, f"--weights={weights}", f"--prompt={prompt}", f"--new={new}", "--quiet"], context.threads)


def theirs(context, kind):
    """llama-bench: tokens per second of the prompt (head for its last token), and of new tokens behind as many."""
    program = context.peers.folder / "llama/bin/llama-bench"
    model = context.peers.folder / f"gguf/gpt2-{kind}.gguf"

    def run(*sizes):
        text = process.output([program, "-m", model, "-t", context.threads, "-r", 3, "-o", "json", *sizes], context.threads)
        return json.loads(text[text.index("["):])[0]

    prompt, new = run("-p", PROMPT, "-n", 0), run("-p", 0, "-n", NEW, "-d", PROMPT)
    return {"prompt": prompt["avg_ts"], "new": new["avg_ts"], "version": f"llama.cpp {new.get('build_number', '')} {new.get('build_commit', '')}"}


def decode(context):
    """Prefill of 256 tokens (the fastest of ours and theirs, then equal weights), and 64 tokens after it one by one, interleaved."""
    why = context.peers.lacks("llama", "llama/bin/llama-bench", *(f"gguf/gpt2-{peer}.gguf" for peer, _, _ in KINDS.values()))
    mine, other = {k: [] for k in KINDS}, {k: [] for k in KINDS}
    for _ in range(context.trials_of(5)):
        for kind, (peer, _, _) in KINDS.items():
            mine[kind].append(ours(context, kind))
            if not why:
                other[kind].append(theirs(context, peer))
            context.say(f"{kind}: {mine[kind][-1]['decode_tokens_per_s']:.1f} tokens/s" + (f", llama.cpp {other[kind][-1]['new']:.1f}" if not why else ""))
    version = [other["f32"][0]["version"]] if not why else []

    def made(target, kind, rate, share, what, against):
        """Our weights of a kind beside theirs of the kinds `against`, the fastest of which counts."""
        trials = mine[kind]
        theirs_of = {f"llama.cpp {KINDS[k][0]}": [t[what] for t in other[k]] for k in against}
        return row.make(target, [t[rate] for t in trials], None if why else theirs_of, why, [t[rate] / t[share] for t in trials], [f"ours: {kind}", *version])

    prefill = ("prefill_tokens_per_s", "prefill_of_peak", "prompt")
    fastest = max(KINDS, key=lambda k: statistics.median(t[prefill[0]] for t in mine[k]))
    rows = [made(row.Target("prefill", "tokens/s", FLOPS, bar_ratio=1.7), fastest, *prefill, KINDS)]
    for kind, (_, ratio, of_limit) in KINDS.items():
        rows.append(made(row.Target(f"prefill-{kind}", "tokens/s", FLOPS, bar_ratio=1.7 if kind == "f32" else None), kind, *prefill, [kind]))
        rows.append(made(row.Target(f"decode-{kind}", "tokens/s", READ, bar_ratio=ratio, bar_of_limit=of_limit), kind, "decode_tokens_per_s", "decode_of_read", "new", [kind]))
    return rows


def eight_billion(context):
    """zaya1-8b in its exact shape with random weights: speed against what its active weights ask of memory and arithmetic, and memory."""
    rows = []
    for kind, memory in [("bf16", 20), ("int8", 12)]:
        t = ours(context, kind, "zaya1-8b", prompt=1024, new=16)
        rows.append(row.make(row.Target(f"8b-decode-{kind}", "tokens/s", READ, bar_of_limit=0.80), [t["decode_tokens_per_s"]], None, "no peer has this model",
                             [t["decode_tokens_per_s"] / t["decode_of_read"]]))
        rows.append(row.make(row.Target(f"8b-prefill-{kind}", "tokens/s", FLOPS, bar_of_limit=0.50), [t["prefill_tokens_per_s"]], None, "no peer has this model",
                             [t["prefill_tokens_per_s"] / t["prefill_of_peak"]]))
        rows.append(row.make(row.Target(f"8b-memory-{kind}", "GiB", "the target", bar_of_limit=1.0, less=True), [t["resident_bytes"] / 2**30], None, "no peer has this model", [memory]))
    return rows
