"""Small models whose options reach into what a GGUF file must say: rotations, ties, groups of experts. For
`make_exchange.py --variants`, which writes them in float32, and check_gguf.py, which runs llama.cpp on their exports.

Names that begin with "refused_" are refused by the export, since llama.cpp computes something else."""

from attention_models import deepseek_v3, qwen3, scaled, smollm3
from make_models import llama, qwen3_moe
from moe_models import dots1


def yarn(**more):
    return scaled("yarn", factor=8.0, original_max_position_embeddings=256, **more)


LATENT = dict(rms_norm_eps=1e-6)
FOURTH = dict(num_hidden_layers=4, no_rope_layer_interval=4)
DEEP = dict(num_hidden_layers=27, first_k_dense_replace=99, hidden_size=8, intermediate_size=8, **LATENT)
LLAMA3 = scaled("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=256)


def variants(mixtral, sigmoid_experts):
    groups = dict(n_routed_experts=8, num_experts_per_tok=4, n_group=4, topk_group=2, norm_topk_prob=True)
    mixture = dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=None)
    return {
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
        "llama_bias": (llama, dict(attention_bias=True)),
        "refused_dots1_gqa": (dots1, {**sigmoid_experts, "num_key_value_heads": 2}),
        "refused_deepseek_27": (deepseek_v3, DEEP),
        "refused_smollm3_half": (smollm3, {**FOURTH, "no_rope_layer_interval": 2}),
        "refused_smollm3_bias": (smollm3, dict(attention_bias=True, **FOURTH)),
        "refused_llama_ramp": (llama, dict(rope_parameters=yarn(beta_fast=16.0, beta_slow=2.0))),
        "refused_llama_all_dim": (llama, dict(rope_parameters=yarn(mscale=1.0, mscale_all_dim=0.5))),
        "refused_qwen3_llama3": (qwen3, dict(rope_parameters=LLAMA3)),
    }
