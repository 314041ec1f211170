"""Dense families that differ from Llama in norms, biases, rotations by layer or constant factors: qwen2, olmo2, olmo3,
phi3, granite, gemma, gemma2, gemma3_text. For random_models.py, which draws their sizes; SETTINGS gives the rest."""

from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from attention_models import family

FAMILIES = {
    "qwen2": family(Qwen2ForCausalLM, Qwen2Config),
    "olmo2": family(Olmo2ForCausalLM, Olmo2Config),
    "olmo3": family(Olmo3ForCausalLM, Olmo3Config),
    "phi3": family(Phi3ForCausalLM, Phi3Config),
    "granite": family(GraniteForCausalLM, GraniteConfig),
    "gemma": family(GemmaForCausalLM, GemmaConfig),
    "gemma2": family(Gemma2ForCausalLM, Gemma2Config),
    "gemma3_text": family(Gemma3ForCausalLM, Gemma3TextConfig),
}


def layer_types(d):
    """Of two layers, at least one slides."""
    types = ["sliding_attention", d.one_of("sliding_attention", "full_attention")]
    return types[:: d.one_of(1, -1)]


def windows(d):
    return dict(sliding_window=d.between(2, 8), layer_types=layer_types(d))


def two_ropes(d, plain, any_rope):
    return {"sliding_attention": plain(d), "full_attention": any_rope(d)}


def gemma_caps(d):
    return dict(query_pre_attn_scalar=d.between(3, 40), final_logit_softcapping=d.one_of(None, 3.0, 30.0))


def settings(sizes, plain, any_rope, some_windows):
    """What each family draws beside its sizes."""
    return {
        "qwen2": lambda d: dict(sizes(d), rope_parameters=any_rope(d), **d.one_of({}, some_windows(d))),
        "olmo2": lambda d: dict(sizes(d), rope_parameters=any_rope(d), attention_bias=d.coin()),
        "olmo3": lambda d: dict(
            sizes(d), rope_parameters=two_ropes(d, plain, any_rope), attention_bias=d.coin(), **windows(d)
        ),
        "phi3": lambda d: dict(
            sizes(d),
            head_dim=4 * d.between(1, 4),
            rope_parameters={**plain(d), "partial_rotary_factor": d.one_of(0.5, 1.0)},
            sliding_window=d.one_of(None, d.between(2, 8)),
        ),
        "granite": lambda d: dict(
            sizes(d),
            rope_parameters=any_rope(d),
            attention_bias=d.coin(),
            mlp_bias=d.coin(),
            embedding_multiplier=d.one_of(0.7, 3.0),
            logits_scaling=d.one_of(0.6, 4.0),
            residual_multiplier=d.one_of(0.22, 1.5),
            attention_multiplier=d.one_of(0.1, 0.4),
        ),
        "gemma": lambda d: dict(sizes(d), rope_parameters=any_rope(d), attention_bias=d.coin()),
        "gemma2": lambda d: dict(
            sizes(d),
            rope_parameters=any_rope(d),
            attention_bias=d.coin(),
            attn_logit_softcapping=d.one_of(None, 2.0, 50.0),
            **gemma_caps(d),
            **windows(d),
        ),
        "gemma3_text": lambda d: dict(
            sizes(d),
            rope_parameters=two_ropes(d, plain, any_rope),
            attention_bias=d.coin(),
            **gemma_caps(d),
            **windows(d),
        ),
    }
