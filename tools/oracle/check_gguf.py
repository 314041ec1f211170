"""Reads a GGUF file with the `gguf` package and compares every tensor with the Hugging Face folder it came from, by
formulas of its own: names, the order of rotated rows, stacked experts, split latents, rounding of each type. With
--logits and the `xllamacpp` package, llama.cpp runs it and its log-probabilities are compared with those of
reference.safetensors in that folder. With --text, llama.cpp encodes these files, 1,500 characters at a time, and its
ids are compared with those of `ingot tokenizer encode --special` (--ingot names the program).

  check_gguf.py HF_FOLDER FILE.gguf [--logits TOLERANCE] [--text FILE...] [--ingot PROGRAM]"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import gguf
import numpy as np

FIELDS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "F64": np.dtype("<f8"), "I32": np.dtype("<i4")}


def read_safetensors(folder, pattern="model*.safetensors"):
    out = {}
    for file in sorted(Path(folder).glob(pattern)):
        raw = file.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        for name, entry in json.loads(raw[8 : 8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            data = raw[8 + length + begin : 8 + length + end]
            if entry["dtype"] == "BF16":
                value = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
            else:
                value = np.frombuffer(data, FIELDS[entry["dtype"]])
            out[name] = value.reshape(entry["shape"])
    return out


def interleave(rows, heads):
    """Rotate-half rows to pairs side by side."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


GPT2 = {
    "token_embd": "wte",
    "position_embd": "wpe",
    "output_norm": "ln_f",
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
LLAMA = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
}
BOTH_NORMS = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
INNER = {
    "phi3": {**LLAMA, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    **{kind: {**LLAMA, **BOTH_NORMS} for kind in ("gemma2", "gemma3_text", "olmo2", "olmo3")},
}
NEIGHBOURS = ("llama", "mixtral", "smollm3", "granite")
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def latent_rows(inner, value, config):
    """DeepSeek's rotated rows, the last of each head, to pairs side by side where they are halves."""
    heads = 1 if inner == "attn_kv_a_mqa" else config["num_attention_heads"]
    if config["rope_interleave"] or inner not in ("attn_q", "attn_q_b", "attn_kv_a_mqa"):
        return value
    value = value.reshape(heads, -1, value.shape[-1])
    plain = value.shape[1] - config["qk_rope_head_dim"]
    turned = [np.concatenate([head[:plain], interleave(head[plain:], 1)]) for head in value]
    return np.concatenate(turned)


def expected(name, weights, config):
    kind = config["model_type"]
    stem, part = name.rsplit(".", 1)
    layer = re.fullmatch(r"blk\.(\d+)\.(.*)", stem)
    inner = layer[2] if layer else stem
    if kind == "gpt2":
        value = weights["transformer." + (f"h.{layer[1]}." if layer else "") + f"{GPT2[inner]}.{part}"]
        return value.T if value.ndim == 2 and layer else value
    if name == "output.weight" and config["tie_word_embeddings"]:
        return weights["model.embed_tokens.weight"]
    offset = np.float32(kind.startswith("gemma") and inner.endswith("norm"))
    if not layer:
        return weights[f"{OUTER[inner]}.{part}"] + offset
    base = f"model.layers.{layer[1]}."
    moe = base + ("block_sparse_moe." if kind == "mixtral" else "mlp.")
    if inner == "exp_probs_b":
        return weights[moe + "gate.e_score_correction_bias"]
    if inner == "ffn_gate_inp":
        return weights[moe + "gate.weight"]
    if inner in ("attn_k_b", "attn_v_b"):
        both = weights[base + "self_attn.kv_b_proj.weight"]
        both = both.reshape(config["num_attention_heads"], -1, config["kv_lora_rank"])
        keys, values = np.split(both, [config["qk_nope_head_dim"]], axis=1)
        return keys.swapaxes(1, 2) if inner == "attn_k_b" else values
    if inner.endswith("_exps"):
        theirs = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}[inner]
        if kind == "mixtral":
            theirs = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[theirs]
        experts = next(config[key] for key in ("num_experts", "num_local_experts", "n_routed_experts") if key in config)
        return np.stack([weights[f"{moe}experts.{e}.{theirs}.weight"] for e in range(experts)])
    value = weights[f"{base}{INNER.get(kind, LLAMA)[inner]}.{part}"] + offset
    if kind == "deepseek_v3":
        return latent_rows(inner, value, config)
    if inner in ("attn_q", "attn_k") and kind in NEIGHBOURS:
        value = interleave(value, config["num_attention_heads" if inner == "attn_q" else "num_key_value_heads"])
    return value


def check_tensors(reader, folder):
    weights, config = read_safetensors(folder), json.loads((Path(folder) / "config.json").read_text())
    used = 0
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":  # follows from the config; the logits test it
            continue
        want = np.ascontiguousarray(expected(tensor.name, weights, config), np.float32)
        assert tuple(reversed(tensor.shape.tolist())) == want.shape, (tensor.name, tensor.shape, want.shape)
        stored = gguf.quants.quantize(want, tensor.tensor_type)
        if not np.array_equal(stored.view(np.uint8).ravel(), np.asarray(tensor.data).view(np.uint8).ravel()):
            raise SystemExit(f"{tensor.name} ({tensor.tensor_type.name}) differs")
        if tensor.name != "output.weight" or not config["tie_word_embeddings"]:
            used += want.size
    total = sum(v.size for v in weights.values())
    assert used == total, (used, total)
    return len(reader.tensors)


def with_tokens(path, vocabulary, folder):
    """A copy with made-up tokens: llama.cpp's server runs no model without. A file that has a tokenizer stays."""
    reader = gguf.GGUFReader(path)
    if reader.fields["tokenizer.ggml.model"].contents() != "no_vocab":
        return path
    copy = Path(folder) / "with_tokens.gguf"
    writer = gguf.GGUFWriter(copy, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        # A name with "phi3" in it makes llama.cpp look for tokens of that family.
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.name", "tokenizer.ggml.model"):
            writer.add_key_value(name, field.contents(), field.types[0])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"token{i}" for i in range(vocabulary)])
    writer.add_token_merges(["t o"])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return copy


def server_of(path):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 64
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.warmup = False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32  # by default half precision
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(params)


def log_probs_of_llama_cpp(path, ids, vocabulary):
    """Of every next token, for each prefix of `ids`, by token."""
    server = server_of(path)
    rows = []
    for t in range(1, len(ids) + 1):
        for seed in range(50):  # a draw that ends the text comes without probabilities: draw again
            request = {"prompt": [int(i) for i in ids[:t]], "max_tokens": 1, "logprobs": vocabulary, "seed": seed}
            answer = server.handle_completions(request)
            if answer["choices"][0]["logprobs"]:
                break
        row = np.full(vocabulary, np.nan)
        for entry in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            row[entry["id"]] = entry["logprob"]
        rows.append(row)
    return np.stack(rows)


def check_logits(folder, path):
    reference = read_safetensors(folder, "reference.safetensors")
    logits = reference["logits"]
    want = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
    want -= logits.max(-1, keepdims=True)
    with tempfile.TemporaryDirectory() as temporary:
        runs = with_tokens(path, logits.shape[-1], temporary)
        got = log_probs_of_llama_cpp(runs, reference["input_ids"], logits.shape[-1])
    seen = ~np.isnan(got)
    assert seen.mean() > 0.95, f"llama.cpp gave {seen.mean():.0%} of the probabilities"
    return np.abs(got - want)[seen].max(), (got[seen].size, logits.size)


def check_text(folder, path, files, program):
    """The number of pieces of text, and those whose ids differ."""
    server, pieces, different = server_of(path), 0, []

    def ids_of_llama_cpp(text):
        body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
        request = urllib.request.Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request).read())["tokens"]

    for file in files:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
        for at in range(0, len(text), 1500):
            piece = text[at : at + 1500]
            command = [program, "tokenizer", "encode", folder, "--file", "-", "--special", "--ids"]
            ours = subprocess.run(command, input=piece.encode(), capture_output=True, check=True).stdout.split()
            pieces += 1
            if [int(i) for i in ours] != ids_of_llama_cpp(piece):
                different.append(f"{file}, from character {at}")
    return pieces, different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("file")
    parser.add_argument("--logits", type=float, metavar="TOLERANCE")
    parser.add_argument("--text", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--ingot", default="build/release/ingot", metavar="PROGRAM")
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.file)
    print(f"{args.file}: {check_tensors(reader, args.folder)} tensors are those of {args.folder}")
    if args.text:
        pieces, different = check_text(args.folder, args.file, args.text, args.ingot)
        print(f"{args.file}: llama.cpp gives other ids for {len(different)} of {pieces} pieces of text", *different[:9])
        if different:
            return 1
    if args.logits is None:
        return 0
    difference, (seen, total) = check_logits(args.folder, args.file)
    print(f"{args.file}: log-probabilities of llama.cpp differ by {difference:.2e} at most ({seen} of {total} given)")
    return 0 if difference <= args.logits else 1


if __name__ == "__main__":
    sys.exit(main())
