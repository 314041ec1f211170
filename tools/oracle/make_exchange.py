"""Checkpoints as transformers writes them (save_pretrained: bf16 and fp32, one file and shards), with logits in double
precision: what import and export are tested with.

One folder per model in tests/fixtures/exchange/: the saved files, and reference.safetensors with `input_ids` and
`logits`. `zaya_sublayers` is the ZAYA1 model again in the older published layout, renamed here from the table in the
model's documentation. `llama_text` has a tokenizer.

  make_exchange.py                    writes the fixtures
  make_exchange.py --variants FOLDER  writes the models of gguf_models.py there
  make_exchange.py --check FOLDER...  loads exported folders into transformers and compares their logits with those of
                                      their own reference.safetensors, or of the fixture of the same name; exits with 1
                                      where they differ"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedTokenizerFast,
)

import dense_models
from attention_models import deepseek_v3, family, mistral, qwen3, scaled, smollm3
from common import FIXTURES, double_precision, max_rel, save_tensors
from gguf_models import variants
from make_models import BIASES, gpt2, llama, qwen3_moe, random_values, zaya
from moe_models import dots1

FOLDER = FIXTURES / "exchange"
TOKENS = 23
mixtral = family(MixtralForCausalLM, MixtralConfig)

# family, settings, dtype, largest shard
MODELS = {
    "gpt2": (gpt2, {}, torch.float32, "5GB"),
    "gpt2_bf16": (gpt2, {}, torch.bfloat16, "16KB"),
    "llama": (llama, {}, torch.bfloat16, "12KB"),
    "llama_tied": (llama, dict(tie_word_embeddings=True), torch.float32, "5GB"),
    "llama_text": (
        llama,
        dict(vocab_size=301, hidden_size=32, head_dim=8, tie_word_embeddings=True, bos_token_id=None, eos_token_id=300),
        torch.bfloat16,
        "5GB",
    ),
    "mistral": (mistral, dict(sliding_window=7), torch.bfloat16, "5GB"),
    "mixtral": (mixtral, dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=None), torch.float32, "30KB"),
    "qwen3": (qwen3, dict(tie_word_embeddings=True), torch.bfloat16, "5GB"),
    "qwen3_moe": (qwen3_moe, {}, torch.bfloat16, "15KB"),
    "smollm3": (smollm3, dict(num_hidden_layers=4, no_rope_layer_interval=4), torch.bfloat16, "5GB"),
    "zaya": (zaya, {}, torch.bfloat16, "20KB"),
    "dots1": (
        dots1,
        dict(
            hidden_size=32,
            num_key_value_heads=4,
            num_hidden_layers=3,
            moe_intermediate_size=8,
            n_routed_experts=6,
            n_shared_experts=2,
            num_experts_per_tok=3,
            first_k_dense_replace=1,
            norm_topk_prob=False,
            routed_scaling_factor=0.7,
            sliding_window=None,
        ),
        torch.bfloat16,
        "15KB",
    ),
    "deepseek_v3": (
        deepseek_v3,
        dict(
            hidden_size=32,
            num_hidden_layers=3,
            moe_intermediate_size=8,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=4,
            n_group=4,
            topk_group=2,
            first_k_dense_replace=1,
            routed_scaling_factor=2.5,
            norm_topk_prob=True,
            rms_norm_eps=1e-6,
        ),
        torch.bfloat16,
        "15KB",
    ),
    "deepseek_v3_yarn": (
        deepseek_v3,
        dict(
            q_lora_rank=None,
            kv_lora_rank=32,
            qk_rope_head_dim=8,
            rope_interleave=False,
            rope_parameters=scaled("yarn", factor=40.0, original_max_position_embeddings=512, mscale=1.0, mscale_all_dim=0.7),
            rms_norm_eps=1e-6,
        ),
        torch.bfloat16,
        "5GB",
    ),
    "llama_yarn": (
        llama,
        dict(head_dim=16, rope_parameters=scaled("yarn", factor=4.0, original_max_position_embeddings=512)),
        torch.bfloat16,
        "5GB",
    ),
}


TWO_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": scaled("linear", factor=8.0),
}
SLIDING = dict(sliding_window=7, layer_types=["sliding_attention", "full_attention"])
DENSE = {
    "qwen2": dict(tie_word_embeddings=True),
    "olmo2": {},
    "olmo3": dict(rope_parameters=TWO_ROPES, **SLIDING),
    "phi3": dict(rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    "granite": dict(
        attention_bias=True,
        mlp_bias=True,
        embedding_multiplier=12.0,
        logits_scaling=8.0,
        residual_multiplier=0.22,
        attention_multiplier=0.015625,
    ),
    "gemma": dict(tie_word_embeddings=True),
    "gemma2": dict(tie_word_embeddings=True, query_pre_attn_scalar=12, **SLIDING),
    "gemma3_text": dict(tie_word_embeddings=True, query_pre_attn_scalar=12, rope_parameters=TWO_ROPES, **SLIDING),
}
MODELS.update(
    (name, (dense_models.FAMILIES[name], over, torch.bfloat16 if i % 2 else torch.float32, "12KB" if i % 3 else "5GB"))
    for i, (name, over) in enumerate(DENSE.items())
)


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=ids[None], use_cache=False).logits[0]


def build(make, over, dtype, seed):
    """A model in double whose weights are exact in `dtype`."""
    cls, config = make(**over)
    config._attn_implementation = config._experts_implementation = "eager"
    with double_precision():  # also its tables of angles
        model = cls(config).double().eval()
    rng = np.random.default_rng(seed)
    values = dict(model.named_parameters())
    values.update((n, b) for n, b in model.named_buffers() if n.endswith(BIASES))
    with torch.no_grad():
        for name in sorted(values):
            values[name].copy_(random_values(name, tuple(values[name].shape), rng).to(dtype))
    return model


def train_tokenizer(vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train([str(FIXTURES / "tokenizer" / "text.txt")], trainer)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    assert tokenizer.get_vocab_size() == vocabulary
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def sublayer_name(name, layers):
    """A native ZAYA1 name in the older layout; experts are split by the caller."""
    if name == "model.norm.weight":
        return "model.final_norm.weight"
    if name.startswith("model.input_hidden_states_"):
        return name.replace("model.input_", "model.layers.0.res_scale.")
    match = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
    if not match:
        return name
    i, rest = int(match[1]), match[2]
    if rest.startswith("post_mlp_residual_scale."):
        tail = rest.removeprefix("post_mlp_residual_scale.")
        return f"model.layers.{2 * i + 2}.res_scale.{tail}" if i + 1 < layers else f"model.res_scale.{tail}"
    rest = rest.replace("post_attention_residual_scale.", "res_scale.")
    if rest.startswith(("self_attn.", "input_layernorm.")):
        for new, old in (
            ("input_layernorm", "input_norm"),
            ("qkv_proj.q_proj", "qkv.linear_q"),
            ("qkv_proj.k_proj", "qkv.linear_k"),
            ("qkv_proj.v_proj_current", "qkv.val_proj1"),
            ("qkv_proj.v_proj_delayed", "qkv.val_proj2"),
            ("qkv_proj.conv_qk_depthwise", "qkv.conv_qk.0"),
            ("qkv_proj.conv_qk_grouped", "qkv.conv_qk.1"),
            ("qk_norm.temp", "qkv.temp"),
        ):
            rest = rest.replace(new, old)
        return f"model.layers.{2 * i}.{rest}"
    for new, old in (
        ("post_attention_layernorm", "input_norm"),
        ("mlp.gate.router_mlp.norm", "zaya_block.router.rmsnorm_eda"),
        ("router_mlp.fc1", "router_mlp.0"),
        ("router_mlp.fc2", "router_mlp.2"),
        ("router_mlp.out_proj", "router_mlp.4"),
        ("mlp.gate.", "zaya_block.router."),
        ("mlp.experts.", "zaya_block.experts."),
    ):
        rest = rest.replace(new, old)
    return f"model.layers.{2 * i + 1}.{rest}"


def write_sublayers(source, target):
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    layers = config["num_hidden_layers"]
    out = {}
    for file in source.glob("model*.safetensors"):
        for name, value in load_file(file).items():
            old = sublayer_name(name, layers)
            if old.endswith("experts.gate_up_proj") or old.endswith("experts.down_proj"):
                which = "linear_fc1" if "gate_up" in old else "linear_fc2"
                base = old[: old.rindex("experts.")] + "experts.local_experts."
                out.update((f"{base}{e}.{which}.weight", m.clone()) for e, m in enumerate(value))
            else:
                out[old] = value
    save_file(out, str(target / "model.safetensors"), metadata={"format": "pt"})
    rope = config.pop("rope_parameters")["hybrid"]
    for newer in ("layer_types", "router_hidden_size", "moe_intermediate_size", "rms_norm_eps", "dtype"):
        config.pop(newer)
    cases = {
        "num_hidden_layers": 2 * layers,
        "ffn_hidden_size": 24,
        "zaya_mlp_expansion": [0, 10] * layers,
        "cca_num_q_heads": [4, 0] * layers,
        "num_query_groups": 2,
        "norm_epsilon": 1e-5,
        "rope_theta": rope["rope_theta"],
        "partial_rotary_factor": rope["partial_rotary_factor"],
        "moe_router_topk": 1,
        "activation_func": "swiglu",
        "torch_dtype": "bfloat16",
    }
    (target / "config.json").write_text(json.dumps({**config, **cases}, indent=1) + "\n")
    shutil.copy(source / "reference.safetensors", target)


def generate(name, seed, models=MODELS, parent=FOLDER):
    make, over, dtype, shard = models[name]
    folder = parent / name
    shutil.rmtree(folder, ignore_errors=True)
    model = build(make, over, dtype, seed)
    with double_precision():
        ids = torch.from_numpy(np.random.default_rng(seed + 1000).integers(3, model.config.vocab_size, TOKENS))
        logits = logits_of(model, ids)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    if name == "llama_text":
        tokenizer = train_tokenizer(model.config.vocab_size)
        tokenizer.save_pretrained(folder)
        GenerationConfig(eos_token_id=[300], do_sample=True, temperature=0.8).save_pretrained(folder)
    save_tensors(folder / "reference.safetensors", {"input_ids": ids.int(), "logits": logits})
    for file in folder.iterdir():
        file.chmod(0o644)


def check(folder):
    """Largest difference of the logits of an exported folder from the fixture's, relative to the largest logit."""
    own = Path(folder) / "reference.safetensors"
    reference = load_file(own if own.exists() else FOLDER / Path(folder).name / "reference.safetensors")
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    loaded.config._attn_implementation = loaded.config._experts_implementation = "eager"
    weights = {name: value.double() for name, value in loaded.state_dict().items()}
    with double_precision():  # the same weights in a model whose tables of angles are double too
        model = type(loaded)(loaded.config).double().eval()
        model.load_state_dict(weights)
        difference = max_rel(logits_of(model, reference["input_ids"].long()), reference["logits"])
    note = f"{model.config.model_type}, logits differ by {difference:.1e}"
    if (Path(folder) / "tokenizer.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        text = "The river runs, naïvely: 42 <|endoftext|>"
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
        generation = GenerationConfig.from_pretrained(folder)
        assert tokenizer.eos_token_id in np.atleast_1d(generation.eos_token_id), generation
        note += f", {len(tokenizer)} tokens"
    return difference, note


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs="+", metavar="FOLDER")
    parser.add_argument("--variants", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    if args.variants:
        models = {n: (*v, torch.float32, "5GB") for n, v in variants(mixtral, MODELS["dots1"][1]).items()}
        for seed, name in enumerate(models):
            generate(name, 9000 + seed, models, args.variants)
        return 0
    if not args.check:
        for seed, name in enumerate(MODELS):
            generate(name, 7000 + seed)
            print(name, sum(f.stat().st_size for f in (FOLDER / name).iterdir()), "bytes")
        write_sublayers(FOLDER / "zaya", FOLDER / "zaya_sublayers")
        return 0
    worst = 0.0
    for folder in args.check:
        difference, note = check(folder)
        print(f"{Path(folder).name}: {note}")
        worst = max(worst, difference)
    return 0 if worst <= 1e-12 else 1


if __name__ == "__main__":
    sys.exit(main())
