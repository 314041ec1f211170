"""Rows of inference beside llama.cpp, on random weights of GPT-2's shape; of many sequences at a time; and the model of 8.8 billion on this machine."""

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
    chats = [context.ingot, "bench", "decode", "zaya1-8b", "--weights=bf16", "--prompt=32", "--new=16", "--batch=1,4", "--trials=2", "--quiet"]
    one, four = process.json_of(chats, context.threads)["batches"]
    rows.append(row.make(row.Target("8b-four-chats-bf16", "tokens/s", "1.6 x one chat's", bar_of_limit=1.0), [four["decode_tokens_per_s"]], None, "no peer has this model",
                         [1.6 * one["decode_tokens_per_s"]]))
    rows.append(row.make(row.Target("8b-four-chats-memory-bf16", "GiB", "the target", bar_of_limit=1.0, less=True), [four["resident_bytes"] / 2**30], None, "no peer has this model", [20]))
    return rows


BATCH_KINDS = ("f32", "bf16")  # equal weights here and there
BESIDE_PROMPT = "our own prompts' tokens/s"


def batch_of(context, preset, sequences, prompt, new, trials=1, weights="f32", *fields):
    """What `bench decode --batch` measured of one number of sequences."""
    command = [context.ingot, "bench", "decode", preset, f"--weights={weights}", f"--prompt={prompt}", f"--new={new}", f"--batch={sequences}", f"--trials={trials}", "--quiet", *fields]
    return process.json_of(command, context.threads)["batches"][0]


def their_batch(context, kind, sequences, prompt, new):
    """llama-batched-bench: tokens per second of all sequences after their prompts."""
    command = [context.peers.folder / "llama/bin/llama-batched-bench", "-m", context.peers.folder / f"gguf/gpt2-{kind}.gguf", "-t", context.threads, "-tb", context.threads,
               "-c", sequences * (prompt + new) + 64, "-b", 512, "-ub", 512, "-npp", prompt, "-ntg", new, "-npl", sequences, "--output-format", "jsonl"]
    lines = [line for line in process.output(command, context.threads).splitlines() if line.startswith("{")]
    return json.loads(lines[-1])["speed_tg"]


def batches(context):
    """Decoding of 64 sequences beside the rate of their prompts, the rate at which attention reads behind 512 tokens, what samples of one prompt
    cost, and 16 sequences of GPT-2's shape beside llama.cpp."""
    rows = []
    for preset, vocabulary, bar in [("zaya-mini", 2048, 0.45), ("llama-small", 2048, 0.75)]:
        t = [batch_of(context, preset, 64, 32, 32, 3, "f32", f"--vocab={vocabulary}") for _ in range(context.trials_of(5))]
        rows.append(row.make(row.Target(f"decode-64-{preset}", "tokens/s", BESIDE_PROMPT, bar_of_limit=bar), [x["decode_tokens_per_s"] for x in t], None, "beside prompts",
                             [x["prefill_tokens_per_s"] for x in t], [f"vocabulary of {vocabulary}; prompts and new tokens of 32"]))
    t = [batch_of(context, "llama-small", 16, 512, 16, 1, "f32", "--vocab=2048") for _ in range(context.trials_of(5))]
    rows.append(row.make(row.Target("attention-of-16-behind-512", "GB/s", "the rate of reading memory", bar_of_limit=0.60), [x["attention_bytes_per_s"] / 1e9 for x in t], None,
                         "against the machine", [x["attention_bytes_per_s"] / x["attention_of_read"] / 1e9 for x in t], ["llama-small"]))
    rows.append(row.make(row.Target("samples-16-of-512", "prefills", "the target", bar_of_limit=1.0, less=True), [x["samples_of_prefill"] for x in t], None, "beside one sample",
                         [1.1 for _ in t], ["llama-small: to the first tokens of 16 samples of one prompt of 512"]))
    why = context.peers.lacks("llama", "llama/bin/llama-batched-bench", *(f"gguf/gpt2-{kind}.gguf" for kind in BATCH_KINDS))
    mine, other = {k: [] for k in BATCH_KINDS}, {k: [] for k in BATCH_KINDS}
    for _ in range(context.trials_of(5)):
        for kind in BATCH_KINDS:
            mine[kind].append(batch_of(context, "gpt2", 16, 32, 32, 1, kind)["decode_tokens_per_s"])
            if not why:
                other[kind].append(their_batch(context, kind, 16, 32, 32))
            context.say(f"16 sequences, {kind}: {mine[kind][-1]:.0f} tokens/s" + (f", llama.cpp {other[kind][-1]:.0f}" if not why else ""))
    for kind in BATCH_KINDS:
        rows.append(row.make(row.Target(f"decode-16-gpt2-{kind}", "tokens/s", bar_ratio=1.2), mine[kind], None if why else {f"llama.cpp {kind}": other[kind]}, why))
    return rows
