"""Small models whose options reach into what a GGUF file must say: rotations, ties, groups of experts. For
`make_exchange.py --variants`, which writes them in float32, and check_gguf.py, which runs llama.cpp on their exports.

Names that begin with "refused_" are refused by the export, since llama.cpp computes something else."""

from attention_models import deepseek_v3, qwen3, scaled, smollm3
from dense_models import FAMILIES as DENSE
from make_models import llama, qwen3_moe
from moe_models import dots1


def yarn(**more):
    return scaled("yarn", factor=8.0, original_max_position_embeddings=256, **more)


LATENT = dict(rms_norm_eps=1e-6)
FOURTH = dict(num_hidden_layers=4, no_rope_layer_interval=4)
DEEP = dict(num_hidden_layers=27, first_k_dense_replace=99, hidden_size=8, intermediate_size=8, **LATENT)
WIDE = dict(hidden_size=32)  # four heads of eight
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
HALF = {**PLAIN, "partial_rotary_factor": 0.5}
FAR = {**PLAIN, "rope_theta": 5e5}
LLAMA3 = scaled("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=256)


def layers(letters):
    """S: slides, F: sees all."""
    types = ["sliding_attention" if letter == "S" else "full_attention" for letter in letters]
    return dict(num_hidden_layers=len(types), layer_types=types, sliding_window=7)


def two_ropes(full, sliding=PLAIN):
    return dict(rope_parameters={"full_attention": full, "sliding_attention": sliding})


def dense_variants():
    gemma = dict(query_pre_attn_scalar=8, tie_word_embeddings=True)
    gemma2 = dict(gemma, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)
    gemma3 = dict(gemma, **two_ropes(scaled("linear", factor=8.0)))
    models = {
        "qwen2_wide": ("qwen2", WIDE),
        "qwen2_yarn": ("qwen2", dict(rope_parameters=yarn(), tie_word_embeddings=True, **WIDE)),
        "granite_biases": (
            "granite",
            dict(attention_bias=True, mlp_bias=True, attention_multiplier=0.2, rope_parameters=LLAMA3),
        ),
        "phi3_half": ("phi3", dict(rope_parameters=HALF, **WIDE)),
        "olmo2_wide": ("olmo2", WIDE),
        "olmo2_tied": ("olmo2", dict(tie_word_embeddings=True, **WIDE)),
        "olmo3_usual": ("olmo3", dict(two_ropes(yarn(), FAR), **layers("SSSFS"), **WIDE)),
        "olmo3_layers": ("olmo3", dict(two_ropes(PLAIN), **layers("FSSF"), **WIDE)),
        "gemma2_usual": ("gemma2", dict(gemma2, **layers("SFSF"))),
        "gemma2_layers": ("gemma2", dict(gemma2, **layers("FSS"))),
        "gemma2_full": ("gemma2", dict(gemma2, **layers("FF"))),
        "gemma3_usual": ("gemma3_text", dict(gemma3, **layers("SSSSSFS"))),
        "gemma3_layers": ("gemma3_text", dict(gemma3, final_logit_softcapping=3.0, **layers("FS"))),
        "gemma3_full": ("gemma3_text", {**gemma3, "tie_word_embeddings": False, **layers("FF")}),
        "refused_gemma3_yarn": ("gemma3_text", {**gemma3, **two_ropes(yarn()), **layers("SF")}),
        "refused_gemma2_scale": ("gemma2", {**gemma2, **layers("SF"), "query_pre_attn_scalar": 9}),
        "refused_gemma2_no_cap": ("gemma2", {**gemma2, **layers("SF"), "attn_logit_softcapping": None}),
        "refused_gemma_bias": ("gemma", dict(attention_bias=True)),
        "refused_olmo3_bases": ("olmo3", dict(two_ropes(FAR), **layers("SF"), **WIDE)),
        "refused_qwen2_heads": ("qwen2", {}),
        "refused_phi3_window": ("phi3", dict(sliding_window=7, rope_parameters=HALF, **WIDE)),
    }
    return {name: (DENSE[kind], {**settings}) for name, (kind, settings) in models.items()}


def variants(mixtral, sigmoid_experts):
    groups = dict(n_routed_experts=8, num_experts_per_tok=4, n_group=4, topk_group=2, norm_topk_prob=True)
    mixture = dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=None)
    return {
        **dense_variants(),
        "deepseek_yarn": (deepseek_v3, dict(rope_parameters=yarn(), **LATENT)),
        "deepseek_yarn_all_dim": (deepseek_v3, dict(rope_parameters=yarn(mscale_all_dim=0.7), **LATENT)),
        "deepseek_yarn_1_1": (deepseek_v3, dict(rope_parameters=yarn(mscale=1.0, mscale_all_dim=1.0), **LATENT)),
        "deepseek_yarn_707": (deepseek_v3, dict(rope_parameters=yarn(mscale=0.707, mscale_all_dim=0.707), **LATENT)),
        "deepseek_yarn_factor": (deepseek_v3, dict(rope_parameters=yarn(attention_factor=1.3), **LATENT)),
        "deepseek_yarn_factor_1": (deepseek_v3, dict(rope_parameters=yarn(attention_factor=1.0), **LATENT)),
        "deepseek_direct_27": (deepseek_v3, dict(q_lora_rank=None, **DEEP)),
        "deepseek_tied": (deepseek_v3, dict(tie_word_embeddings=True, **LATENT)),
        "deepseek_halves": (deepseek_v3, dict(rope_interleave=False, **LATENT)),
        "dots1_tied": (dots1, {**sigmoid_experts, "tie_word_embeddings": True}),
        "dots1_yarn": (dots1, {**sigmoid_experts, "rope_parameters": yarn()}),
        "dots1_groups": (dots1, {**sigmoid_experts, **groups, "first_k_dense_replace": 0}),
        "smollm3_yarn": (smollm3, {**FOURTH, "num_hidden_layers": 8, "rope_parameters": yarn()}),
        "smollm3_linear": (smollm3, {**FOURTH, "num_hidden_layers": 5, "rope_parameters": scaled("linear", factor=4.0)}),
        "smollm3_tied": (smollm3, dict(tie_word_embeddings=True, **FOURTH)),
        "qwen3_yarn": (qwen3, dict(rope_parameters=yarn(attention_factor=1.1))),
        "qwen3_moe_yarn": (qwen3_moe, dict(rope_parameters=yarn())),
        "mixtral_yarn": (mixtral, dict(rope_parameters=yarn(), **mixture)),
        "llama_yarn_factor": (llama, dict(rope_parameters=yarn(attention_factor=0.8))),
        "llama_bias": (llama, dict(attention_bias=True, mlp_bias=True)),
        "refused_dots1_gqa": (dots1, {**sigmoid_experts, "num_key_value_heads": 2}),
        "refused_deepseek_27": (deepseek_v3, DEEP),
        "refused_smollm3_half": (smollm3, {**FOURTH, "no_rope_layer_interval": 2}),
        "refused_smollm3_bias": (smollm3, dict(attention_bias=True, **FOURTH)),
        "refused_llama_ramp": (llama, dict(rope_parameters=yarn(beta_fast=16.0, beta_slow=2.0))),
        "refused_llama_all_dim": (llama, dict(rope_parameters=yarn(mscale=1.0, mscale_all_dim=0.5))),
        "refused_qwen3_llama3": (qwen3, dict(rope_parameters=LLAMA3)),
    }
