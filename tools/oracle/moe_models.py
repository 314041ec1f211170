"""Families of mixtures of experts, for make_models.py: Mixtral, DeepSeek-V3, and dots1 (DeepSeek-V3's MoE block in a
model with grouped-query attention). Entries are (family, settings, extras) as in attention_models.py."""

import torch
from transformers import Dots1Config, Dots1ForCausalLM, MixtralConfig, MixtralForCausalLM

from attention_models import deepseek_v3, family

mixtral = family(MixtralForCausalLM, MixtralConfig)
dots1 = family(Dots1ForCausalLM, Dots1Config)


MOE_MODELS = {
    "mixtral": (
        mixtral,
        dict(hidden_size=22, intermediate_size=14, num_local_experts=5, num_experts_per_tok=2, sliding_window=None),
        {},
    ),
    "mixtral_top3": (
        mixtral,
        dict(
            hidden_size=17,
            intermediate_size=9,
            num_local_experts=7,
            num_experts_per_tok=3,
            num_attention_heads=3,
            num_key_value_heads=1,
            vocab_size=53,
            sliding_window=None,
        ),
        {},
    ),
    "dots1": (
        dots1,
        dict(
            hidden_size=20,
            intermediate_size=26,
            moe_intermediate_size=10,
            num_hidden_layers=3,
            n_routed_experts=6,
            n_shared_experts=1,
            num_experts_per_tok=3,
            first_k_dense_replace=1,
            norm_topk_prob=False,
            routed_scaling_factor=0.7,
            sliding_window=None,
        ),
        {},
    ),
    "deepseek_v3": (
        deepseek_v3,
        dict(
            hidden_size=22,
            intermediate_size=26,
            moe_intermediate_size=9,
            num_hidden_layers=3,
            n_routed_experts=12,
            n_shared_experts=1,
            num_experts_per_tok=4,
            n_group=4,
            topk_group=2,
            first_k_dense_replace=1,
            routed_scaling_factor=2.5,
            norm_topk_prob=True,
            vocab_size=67,
        ),
        {},
    ),
    "dots1_groups": (
        dots1,
        dict(
            hidden_size=21,
            moe_intermediate_size=7,
            n_routed_experts=16,
            n_shared_experts=2,
            num_experts_per_tok=4,
            n_group=4,
            topk_group=2,
            norm_topk_prob=True,
            routed_scaling_factor=2.5,
            num_attention_heads=3,
            num_key_value_heads=3,
            vocab_size=59,
            sliding_window=None,
        ),
        {},
    ),
}


def experts_of(config):
    return config.num_experts if hasattr(config, "num_experts") else config.num_local_experts


def gap(scores, k):
    """The smallest distance, over rows, between the last one taken and the first left out."""
    ordered = scores.sort(-1, descending=True).values
    return (ordered[:, k - 1] - ordered[:, k]).min().item() if k < scores.shape[-1] else float("inf")


def routing_margin(config, logits, bias):
    """Distance of all decisions of one router from a tie: groups first, then experts."""
    top_k = config.num_experts_per_tok
    if bias is None:
        return gap(logits.softmax(-1), top_k)
    biased = logits.sigmoid() + bias
    groups = biased.view(len(biased), config.n_group, -1)
    rating = groups.topk(2, -1).values.sum(-1)
    kept = torch.zeros_like(rating).scatter(1, rating.topk(config.topk_group, -1).indices, 1).bool()
    survivors = groups.masked_fill(~kept[..., None], -100.0).flatten(1)
    return min(gap(rating, config.topk_group), gap(survivors, top_k))


def mixtral_names(values):
    """The names that Mixtral's checkpoints have on disk."""
    parts = {".mlp.": ".block_sparse_moe.", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    out = {}
    for key, value in values.items():
        if ".mlp." in key:
            for ours, theirs in parts.items():
                key = key.replace(ours, theirs)
        out[key] = value
    return out
