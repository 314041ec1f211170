"""Families and options of attention and positions, for make_models.py: windows, NoPE layers, scaled and half-truncated
rotations, soft caps, latent attention.

An entry is (family, settings, extras). `adjust` turns the library's model into one with an option that no family of
the library has alone; `options` are the lines that say the same to Ingot (options.toml beside config.json). `whole_row`
False: the library builds masks that know nothing of packed rows, so only its single documents are the oracle."""

import torch
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.llama import modeling_llama


def settings(**over):
    return {
        **dict(
            vocab_size=61,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            rms_norm_eps=1e-5,
            max_position_embeddings=64,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        ),
        **over,
    }


def family(model, config):
    return lambda **over: (model, config(**settings(**over)))


llama = family(LlamaForCausalLM, LlamaConfig)
mistral = family(MistralForCausalLM, MistralConfig)
qwen3 = family(Qwen3ForCausalLM, Qwen3Config)
smollm3 = family(SmolLM3ForCausalLM, SmolLM3Config)


def deepseek_v3(**over):
    """Latent attention; every layer dense."""
    given = settings(
        **{
            **dict(
                q_lora_rank=14,
                kv_lora_rank=18,
                qk_nope_head_dim=6,
                qk_rope_head_dim=4,
                v_head_dim=10,
                num_key_value_heads=over.get("num_attention_heads", 4),
                num_mtp_layers=0,
                first_k_dense_replace=9,
            ),
            **over,
        }
    )
    del given["head_dim"]
    return DeepseekV3ForCausalLM, DeepseekV3Config(**given)


def soft_cap(scale, cap):
    """Gemma 2's attention function in a Llama: the scale, then cap tanh(logits / cap)."""

    def adjust(model):
        def attention(module, query, key, value, mask, dropout=0.0, scaling=None, **rest):
            return modeling_gemma2.eager_attention_forward(
                module, query, key, value, mask, dropout=0.0, scaling=scale, softcap=cap
            )

        ALL_ATTENTION_FUNCTIONS.register("ingot_soft_cap", attention)
        model.config._attn_implementation = "ingot_soft_cap"
        for layer in model.model.layers:
            layer.self_attn.config._attn_implementation = "ingot_soft_cap"
        forward = model.model.forward  # the library makes no mask for functions it does not know

        def with_mask(input_ids=None, attention_mask=None, **kwargs):
            if attention_mask is None:
                n = input_ids.shape[1]
                visible = torch.ones(n, n, dtype=torch.bool).tril()
                attention_mask = torch.zeros(1, 1, n, n, dtype=torch.float64).masked_fill(~visible, -1e300)
            return forward(input_ids=input_ids, attention_mask=attention_mask, **kwargs)

        model.model.forward = with_mask

    return adjust


def half_truncated(model):
    """modded-nanogpt's rotation: head_dim / 4 frequencies 1024^-linspace(0, 1), as many zeros, and y1 = x1 cos + x2
    sin, y2 = x2 cos - x1 sin."""
    rotary = model.model.rotary_emb
    width = model.config.head_dim
    frequency = (1 / 1024) ** torch.linspace(0, 1, steps=width // 4, dtype=torch.float64)
    frequency = torch.cat([frequency, torch.zeros(width // 4, dtype=torch.float64)])

    def angles(x, position_ids, **kwargs):
        theta = position_ids[..., None].double() * frequency
        return torch.cos(theta), torch.sin(theta)

    rotary.forward = angles

    def apply(q, k, cos, sin, unsqueeze_dim=1):
        def turn(x):
            x1, x2 = x.chunk(2, dim=-1)
            c, s = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
            return torch.cat((x1 * c + x2 * s, x1 * (-s) + x2 * c), -1)

        return turn(q), turn(k)

    modeling_llama.apply_rotary_pos_emb = apply


def restore():
    """Undoes what `adjust` changed in the library's modules."""
    modeling_llama.apply_rotary_pos_emb = _apply_rotary_pos_emb


_apply_rotary_pos_emb = modeling_llama.apply_rotary_pos_emb


def scaled(kind, **more):
    return {"rope_type": kind, "rope_theta": 500000.0, **more}


ATTENTION_MODELS = {
    "mistral_window": (
        mistral,
        dict(sliding_window=5, hidden_size=28, intermediate_size=37, vocab_size=67),
        dict(whole_row=False),
    ),
    "window_pattern": (
        qwen3,
        dict(
            num_hidden_layers=3,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
            use_sliding_window=True,
            sliding_window=4,
            hidden_size=22,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=10,
            vocab_size=53,
        ),
        dict(whole_row=False),
    ),
    "smollm3": (
        smollm3,
        dict(num_hidden_layers=4, no_rope_layer_interval=2, hidden_size=20, tie_word_embeddings=True, head_dim=6),
        {},
    ),
    "smollm3_window": (
        smollm3,
        dict(
            num_hidden_layers=3,
            no_rope_layers=[1, 0, 1],
            use_sliding_window=True,
            sliding_window=6,
            num_attention_heads=6,
            head_dim=4,
            vocab_size=59,
        ),
        dict(whole_row=False),
    ),
    "llama_linear": (llama, dict(rope_parameters=scaled("linear", factor=4.0), vocab_size=63), {}),
    "llama_llama3": (
        llama,
        dict(
            head_dim=16,
            num_attention_heads=3,
            num_key_value_heads=3,
            rope_parameters=scaled(
                "llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
        ),
        {},
    ),
    "llama_yarn": (
        llama,
        dict(
            head_dim=16,
            hidden_size=26,
            num_attention_heads=2,
            rope_parameters=scaled("yarn", factor=4.0, original_max_position_embeddings=512),
        ),
        {},
    ),
    "mla": (deepseek_v3, dict(vocab_size=57, hidden_size=22), {}),
    "mla_direct": (
        deepseek_v3,
        dict(q_lora_rank=None, num_attention_heads=3, v_head_dim=5, rope_interleave=False, hidden_size=25),
        {},
    ),
    "mla_yarn": (
        deepseek_v3,
        dict(
            qk_rope_head_dim=8,
            qk_nope_head_dim=5,
            kv_lora_rank=11,
            rope_parameters=scaled(
                "yarn",
                factor=40.0,
                original_max_position_embeddings=512,
                mscale=1.0,
                mscale_all_dim=0.7,
                beta_fast=32.0,
                beta_slow=1.0,
            ),
        ),
        {},
    ),
    "llama_softcap": (
        llama,
        dict(hidden_size=27, num_attention_heads=3, num_key_value_heads=1, vocab_size=71),
        dict(adjust=soft_cap(0.4, 1.5), options="attention_scale = 0.4\nlogit_softcap = 1.5\n"),
    ),
    "llama_half_truncated": (
        llama,
        dict(head_dim=12, num_attention_heads=3, num_key_value_heads=1),
        dict(adjust=half_truncated, options="half_truncated_rope = true\nrope_theta = 1024.0\n"),
    ),
}
