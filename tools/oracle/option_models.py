"""Options of MLP, head and positions that no family of the library has alone, given to one, for make_models.py; entries
are (family, settings, extras) as in attention_models.py."""

import torch
from transformers.models.llama import modeling_llama

from attention_models import llama, qwen3


def exact_gelu(model):
    for block in model.transformer.h:
        block.mlp.act = torch.nn.GELU()


def geglu(model):
    for layer in model.model.layers:
        layer.mlp.act_fn = torch.nn.GELU(approximate="tanh")


def tanh_cap(cap, divisor):
    """Gemma 2's bound of the output logits, which there has cap = divisor."""

    def adjust(model):
        model.lm_head.register_forward_hook(lambda _, __, logits: cap * torch.tanh(logits / divisor))

    return adjust


def partial_rotation(share):
    """The first channels of a head turn as a head of their number would; the others do not."""

    def adjust(model):
        turned = int(model.config.head_dim * share)
        exponent = torch.arange(0, turned, 2, dtype=torch.float64) / turned
        frequency = model.config.rope_parameters["rope_theta"] ** -exponent

        def angles(x, position_ids, **kwargs):
            angle = position_ids[..., None].double() * frequency
            return angle.cos(), angle.sin()

        def turn(x, cos, sin):
            x1, x2, rest = x.split([turned // 2, turned // 2, x.shape[-1] - turned], -1)
            return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin, rest), -1)

        model.model.rotary_emb.forward = angles
        modeling_llama.apply_rotary_pos_emb = lambda q, k, cos, sin, axis=1: (
            turn(q, cos.unsqueeze(axis), sin.unsqueeze(axis)),
            turn(k, cos.unsqueeze(axis), sin.unsqueeze(axis)),
        )

    return adjust


def no_rotation(model):
    modeling_llama.apply_rotary_pos_emb = lambda q, k, cos, sin: (q, k)


def window_theta(theta):
    """Gemma 3's second base: layers with a window turn by it."""

    def adjust(model):
        width = model.config.head_dim
        frequency = theta ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)

        def other(module, args, kwargs):
            x = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
            angle = torch.arange(x.shape[1])[None, :, None].double() * frequency
            angle = torch.cat([angle, angle], -1)
            kwargs["position_embeddings"] = angle.cos(), angle.sin()
            return args, kwargs

        for layer, kind in zip(model.model.layers, model.config.layer_types):
            if kind == "sliding_attention":
                layer.self_attn.register_forward_pre_hook(other, with_kwargs=True)

    return adjust


def together(*adjustments):
    return lambda model: [adjust(model) for adjust in adjustments]


def option_models(gpt2):
    return {
        "gpt2_gelu": (gpt2, dict(n_embd=21, vocab_size=53), dict(adjust=exact_gelu, options='mlp = "gelu"\n')),
        "llama_geglu": (
            llama,
            dict(hidden_size=28, intermediate_size=19, vocab_size=55),
            dict(
                adjust=together(geglu, tanh_cap(2.0, 3.0), partial_rotation(0.75)),
                options='mlp = "geglu"\nrotary_fraction = 0.75\nhead_cap = { kind = "tanh", cap = 2.0, divisor = 3.0 }\n',
            ),
        ),
        "llama_unrotated": (
            llama,
            dict(hidden_size=20, intermediate_size=33, vocab_size=70, tie_word_embeddings=True),
            dict(
                adjust=together(no_rotation, tanh_cap(1.5, 1.5)),
                options='position = "none"\nhead_cap = { kind = "tanh", cap = 1.5 }\n',
            ),
        ),
        "qwen3_two_bases": (
            qwen3,
            dict(
                hidden_size=20,
                vocab_size=52,
                use_sliding_window=True,
                sliding_window=6,
                layer_types=["sliding_attention", "full_attention"],
            ),
            dict(whole_row=False, adjust=window_theta(50.0), options="window_rope_theta = 50.0\n"),
        ),
    }
