"""Random configurations of every family, for make_models.py: widths, heads, vocabularies and the family's options follow
from the entry's name alone. No width and no vocabulary is a multiple of 16; parameters are limited, so that all gradients
fit in small files. Entries are (family, settings, extras) as in attention_models.py."""

import zlib

import numpy as np
import torch

import dense_models
from attention_models import deepseek_v3, llama, mistral, qwen3, scaled, smollm3
from moe_models import dots1, mixtral

WIDTHS = {"narrow": (17, 40), "wide": (49, 79)}
MOST_PARAMETERS = {"narrow": 10_000, "wide": 18_000}


class Draw:
    def __init__(self, name, widths):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.widths = widths

    def between(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def odd_size(self, low, high, multiple_of=1):
        """A size that no block of a kernel divides."""
        while (size := self.between(low, high)) % 16 == 0 or size % multiple_of != 0:
            pass
        return size

    def width(self, heads):
        return self.odd_size(*self.widths, multiple_of=heads)  # the library's wish, also where head_dim is given

    def one_of(self, *values):
        return values[self.between(0, len(values) - 1)]

    def coin(self):
        return self.one_of(False, True)


def plain_rope(d):
    return {"rope_type": "default", "rope_theta": d.one_of(100.0, 5000.0, 10000.0, 1e6)}


def any_rope(d):
    original = d.one_of(8, 16, 32)
    return d.one_of(
        plain_rope(d),
        scaled("linear", factor=d.one_of(1.5, 3.0)),
        scaled("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=original),
        scaled("yarn", factor=64 / original, original_max_position_embeddings=original),
    )


def sizes(d):
    kv_heads = d.between(1, 3)
    heads = kv_heads * d.between(1 if kv_heads > 1 else 2, 3)
    return dict(
        vocab_size=d.odd_size(50, 99),
        hidden_size=d.width(heads),
        intermediate_size=d.between(9, 30),
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=2 * d.between(2, 9),
        rms_norm_eps=d.one_of(1e-6, 1e-5, 1e-3),
        tie_word_embeddings=d.coin(),
        rope_parameters=plain_rope(d),
    )


def some_windows(d):
    """Which of two layers slide; the library takes the window of those alone."""
    types = ["sliding_attention", d.one_of("sliding_attention", "full_attention")]
    return dict(use_sliding_window=True, sliding_window=d.between(2, 8), layer_types=types[:: d.one_of(1, -1)])


def sigmoid_experts(d):
    """Experts of DeepSeek-V3 and dots1; a group is rated by its two best, so a limit takes two experts of each kept."""
    groups = d.between(1, 3)
    kept = d.between(1, groups)
    top_k = d.between(2, 3) if kept == groups else 2 * kept
    return dict(
        moe_intermediate_size=d.between(3, 6),
        n_routed_experts=groups * d.between(3, 4) if groups > 1 else d.between(top_k + 1, 6),
        n_shared_experts=d.between(1, 2),
        num_experts_per_tok=top_k,
        n_group=groups,
        topk_group=kept,
        first_k_dense_replace=d.between(0, 1),
        norm_topk_prob=d.coin(),
        routed_scaling_factor=d.one_of(0.6, 1.0, 2.5),
    )


def qwen3_moe_settings(d):
    top_k = d.between(1, 3)
    return dict(
        sizes(d),
        attention_bias=d.coin(),
        num_experts=d.between(4, 8),
        num_experts_per_tok=top_k,
        moe_intermediate_size=d.between(3, 12),
        norm_topk_prob=top_k > 1 and d.coin(),  # one normalised weight is 1 whatever the router says
    )


def gpt2_settings(d):
    heads = d.between(1, 5)
    return dict(
        vocab_size=d.odd_size(50, 99),
        n_embd=d.width(heads),
        n_head=heads,
        n_layer=d.one_of(1, 2),
        n_inner=d.between(9, 30),
        n_positions=d.between(30, 50),
        layer_norm_epsilon=d.one_of(1e-6, 1e-5, 1e-3),
    )


def deepseek_settings(d):
    out = sizes(d)
    return dict(
        out,
        num_key_value_heads=out["num_attention_heads"],
        q_lora_rank=d.one_of(None, d.between(3, 20)),
        kv_lora_rank=d.between(3, 20),
        qk_nope_head_dim=d.between(1, 10),
        qk_rope_head_dim=2 * d.between(1, 5),
        v_head_dim=d.between(1, 12),
        rope_interleave=d.coin(),
        **sigmoid_experts(d),
    )


def zaya_settings(d):
    out = sizes(d)
    del out["intermediate_size"]
    rope = {**plain_rope(d), "partial_rotary_factor": d.one_of(0.5, 1.0)}
    return dict(
        out,
        head_dim=4 * d.between(1, 4),
        tie_word_embeddings=True,
        num_experts=d.between(4, 7),
        moe_intermediate_size=d.between(3, 12),
        router_hidden_size=d.between(5, 14),
        rope_parameters={"hybrid": rope},
    )


SETTINGS = {
    "gpt2": gpt2_settings,
    "llama": lambda d: dict(sizes(d), rope_parameters=any_rope(d), attention_bias=d.coin()),
    "mistral": lambda d: dict(sizes(d), sliding_window=d.one_of(None, d.between(2, 8))),
    "smollm3": lambda d: dict(
        sizes(d), no_rope_layers=d.one_of([0, 1], [1, 0]), attention_bias=d.coin(), **d.one_of({}, some_windows(d))
    ),
    "qwen3": lambda d: dict(sizes(d), attention_bias=d.coin(), rope_parameters=any_rope(d), **d.one_of({}, some_windows(d))),
    "qwen3_moe": qwen3_moe_settings,
    "mixtral": lambda d: dict(
        sizes(d),
        intermediate_size=d.between(3, 12),
        num_local_experts=d.between(4, 8),
        num_experts_per_tok=d.between(2, 3),
        sliding_window=d.one_of(None, d.between(2, 8)),
    ),
    "dots1": lambda d: dict(sizes(d), attention_bias=d.coin(), sliding_window=None, **sigmoid_experts(d)),
    "deepseek_v3": deepseek_settings,
    "zaya": zaya_settings,
    **dense_models.settings(sizes, plain_rope, any_rope, some_windows),
}


def parameters(make, settings):
    cls, config = make(**settings)
    with torch.device("meta"):
        return sum(p.numel() for p in cls(config).parameters())


def random_models(gpt2, qwen3_moe, zaya, kinds=WIDTHS):
    """`kinds`: names of further draws, by the widths that each begins with."""
    makers = dict(
        gpt2=gpt2,
        llama=llama,
        mistral=mistral,
        smollm3=smollm3,
        qwen3=qwen3,
        qwen3_moe=qwen3_moe,
        mixtral=mixtral,
        dots1=dots1,
        deepseek_v3=deepseek_v3,
        zaya=zaya,
        **dense_models.FAMILIES,
    )
    models = {}
    for family, make in makers.items():
        for kind in kinds:
            name, like = f"{family}_random_{kind}", kind.rstrip("0123456789")
            d = Draw(name, WIDTHS[like])
            while parameters(make, settings := SETTINGS[family](d)) > MOST_PARAMETERS[like]:
                pass
            models[name] = (make, settings, dict(whole_row=not settings.get("sliding_window"), brief=True))
    return models
