"""Greedy generation against transformers: exports trained runs with `ingot export`, continues a prompt by 200 tokens in both
programs (fp32), special tokens on, and compares. Where they part, the two best logits there must be closer than 1e-4, at most once per run.

  check_greedy.py INGOT RUN_FOLDER... [--prompt TEXT] [--tokens N]

--train FOLDER first trains one small model per family on this repository's manual (about a minute each) and checks those."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
CLOSE = 1e-4
SMALL = "width = 64\nlayers = 3\nheads = 4\nkv_heads = 2\nhead_width = 16\nhidden = 128\ncontext = 256\n"
MLA = (
    "width = 64\nlayers = 3\nheads = 4\nkv_heads = 4\nhidden = 128\ncontext = 256\nattention = \"mla\"\n"
    "interleaved_rope = true\nmla.q_rank = 24\nmla.kv_rank = 32\nmla.nope_width = 16\nmla.rope_width = 8\nmla.value_width = 16\n"
)
SIGMOID = 'moe.score = "sigmoid"\nmoe.shared_hidden = 48\nmoe.hidden = 48\nmoe.aux_coefficient = 0.0\nmoe.balance = "sign"\n'
FAMILIES = {
    "gpt2": 'preset = "gpt-10m"\nwidth = 64\nlayers = 3\nheads = 4\nkv_heads = 4\n',
    "llama": 'preset = "llama-small"\n' + SMALL,
    "qwen3": 'preset = "llama-small"\nqk_norm = true\n' + SMALL,
    "qwen2": 'preset = "llama-small"\nattention_bias = true\nattention_out_bias = false\n' + SMALL,
    "olmo2": 'preset = "llama-small"\nnorm_position = "after"\nqk_norm = true\nqk_norm_joint = true\n' + SMALL,
    "olmo3": (
        'preset = "llama-small"\nnorm_position = "after"\nqk_norm = true\nqk_norm_joint = true\nwindow = 24\nwindow_pattern = "SSF"\n' + SMALL
    ),
    "phi3": 'preset = "llama-small"\nrotary_fraction = 0.5\n' + SMALL,
    "granite": 'preset = "llama-small"\nembedding_scale = 3.0\nsublayer_scale = 0.5\nlogit_divisor = 2.0\nattention_scale = 0.2\n' + SMALL,
    "gemma": 'preset = "llama-small"\nmlp = "geglu"\ntied = true\nnorm_offset = 1.0\nembedding_scale = 8.0\n' + SMALL,
    "gemma2": (
        'preset = "llama-small"\nmlp = "geglu"\ntied = true\nnorm_offset = 1.0\nnorm_position = "both"\nembedding_scale = 8.0\n'
        'window = 24\nwindow_pattern = "SF"\nlogit_softcap = 20.0\nhead_cap.kind = "tanh"\nhead_cap.cap = 15.0\n' + SMALL
    ),
    "gemma3_text": (
        'preset = "llama-small"\nmlp = "geglu"\ntied = true\nnorm_offset = 1.0\nnorm_position = "both"\nqk_norm = true\n'
        'embedding_scale = 8.0\nwindow = 24\nwindow_pattern = "SSF"\nwindow_rope_theta = 1000.0\nrope_theta = 50000.0\n' + SMALL
    ),
    "qwen3_moe": 'preset = "moe-small"\nmoe.hidden = 64\n' + SMALL,
    "mixtral": 'preset = "moe-small"\nqk_norm = false\nmoe.hidden = 64\n' + SMALL,
    "mistral": 'preset = "llama-small"\nwindow = 24\n' + SMALL,
    "smollm3": 'preset = "llama-small"\nrope_pattern = "RRN"\n' + SMALL,
    "deepseek_v3": 'preset = "llama-small"\n' + MLA,
    "deepseek_v3_experts": 'preset = "moe-small"\nqk_norm = false\nmoe.first_dense = 1\n' + SIGMOID + MLA,
    "dots1": 'preset = "moe-small"\nmoe.first_dense = 1\n' + SIGMOID + SMALL,
    "zaya": 'preset = "zaya-tiny"\nwidth = 64\nlayers = 3\nheads = 4\nkv_heads = 2\nhead_width = 16\ncontext = 256\n',
}
RECIPE = """[run]
folder = "{run}"
[model]
{model}
[tokenizer]
vocab = 512
special_tokens = ["<|im_start|>", "<|im_end|>"]
[data]
folder = "{folder}/data"
end_of_text = false
special_tokens = "parse"
[[data.sources]]
name = "manual"
path = "{root}/docs/*.md"
tail_validation = true
[[phases]]
steps = 120
batch = 8
sequence = 128
lr = 1e-2
warmup = 10
[evaluation]
every = 0
[samples]
every = 0
"""


def train(ingot, folder, names):
    runs = []
    for name, model in FAMILIES.items():
        if names and name not in names:
            continue
        run = folder / name
        recipe = folder / f"{name}.toml"
        recipe.write_text(RECIPE.format(run=run, folder=folder, root=ROOT, model=model))
        subprocess.run([ingot, "run", recipe], check=True, capture_output=True)
        runs.append(run)
    return runs


def check(ingot, run, prompt, tokens):
    ours = subprocess.run(
        [ingot, "generate", "--run", run, "--prompt", prompt, "--temperature", "0", "--max-tokens", str(tokens), "--quiet",
         "--special"],
        check=True,
        capture_output=True,
    ).stdout.decode(errors="replace")
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([ingot, "export", run, out + "/hf", "--dtype", "f32"], check=True, capture_output=True)
        model = AutoModelForCausalLM.from_pretrained(out + "/hf", dtype=torch.float32, attn_implementation="eager").eval()
        tokenizer = AutoTokenizer.from_pretrained(out + "/hf")
    ids = tokenizer(prompt, return_tensors="pt").input_ids  # with special tokens, as it does by default
    gaps, start = [], ids.shape[1]
    with torch.no_grad():
        for _ in range(tokens):  # without a cache: every logit from a forward pass over the whole text
            best = model(ids, use_cache=False).logits[0, -1].float().topk(2)
            gaps.append((best.values[0] - best.values[1]).item())
            ids = torch.cat([ids, best.indices[None, :1]], 1)
    theirs = [tokenizer.decode(ids[0, start : start + n + 1]) for n in range(tokens)]
    same = sum(ours.startswith(text.rstrip("\ufffd")) for text in theirs)
    if same == tokens:
        return f"{tokens} tokens equal (smallest gap of the two best logits {min(gaps):.2e})", True
    return f"parts after {same} tokens, where the two best logits are {gaps[same]:.2e} apart", gaps[same] < CLOSE


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ingot")
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--families", nargs="*", help="with --train: these alone")
    parser.add_argument("--prompt", default="<|im_start|>The recipe")
    parser.add_argument("--tokens", type=int, default=200)
    o = parser.parse_args()
    if o.train:
        o.train.mkdir(parents=True, exist_ok=True)
        o.runs += train(o.ingot, o.train, o.families)
    good = True
    for run in o.runs:
        text, ok = check(o.ingot, run, o.prompt, o.tokens)
        good &= ok
        print(f"{run.name}: {text}", flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
