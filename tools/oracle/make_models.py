"""Small random models of each family: weights, packed documents, logits, loss, gradients, in double
precision.

One folder per model in tests/fixtures/models/: config.json and model.safetensors are a checkpoint that
transformers loads (weights rounded to float32: single and double tests start from the same numbers);
reference.safetensors holds inputs and results, reference.json the provenance. README.md lists the
contents."""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

import zaya_double
from attention_models import ATTENTION_MODELS, restore
from common import FIXTURES, double_precision, max_rel, save_json, save_tensors
from moe_models import MOE_MODELS, experts_of, mixtral_names, routing_margin
from option_models import option_models
from random_models import random_models

VOCABULARY = 61
DOCUMENTS = (11, 1, 17, 8)  # lengths; one document of a single token has no target at all
MIN_ROUTER_MARGIN = 1e-3
AUX_COEFFICIENT, Z_COEFFICIENT = 0.01, 0.001
NO_TARGET = -1
MOE_FAMILIES = ("qwen3_moe", "mixtral", "dots1", "deepseek_v3")
BETWEEN = ("stream.", "router_logits.", "experts.")  # left out of brief fixtures
BIASES = ("balancing_biases", "e_score_correction_bias")  # buffers that a checkpoint holds


def special_tokens():
    return dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


def gpt2(**over):
    return GPT2LMHeadModel, GPT2Config(
        **{
            **dict(
                vocab_size=VOCABULARY,
                n_positions=32,
                n_embd=24,
                n_layer=2,
                n_head=3,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
            ),
            **special_tokens(),
            **over,
        }
    )


def llama(**over):
    return LlamaForCausalLM, LlamaConfig(
        **{
            **dict(
                vocab_size=VOCABULARY,
                hidden_size=24,
                intermediate_size=40,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=6,
                rms_norm_eps=1e-5,
                max_position_embeddings=64,
                tie_word_embeddings=False,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            ),
            **special_tokens(),
            **over,
        }
    )


def qwen3_moe(**over):
    return Qwen3MoeForCausalLM, Qwen3MoeConfig(
        **{
            **dict(
                vocab_size=VOCABULARY,
                hidden_size=20,
                intermediate_size=24,
                moe_intermediate_size=10,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=6,
                num_experts=6,
                num_experts_per_tok=2,
                norm_topk_prob=True,
                decoder_sparse_step=1,
                mlp_only_layers=[],
                rms_norm_eps=1e-6,
                max_position_embeddings=64,
                tie_word_embeddings=False,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            ),
            **special_tokens(),
            **over,
        }
    )


def zaya(**over):
    from transformers import ZayaConfig, ZayaForCausalLM

    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    return ZayaForCausalLM, ZayaConfig(
        **{
            **dict(
                vocab_size=VOCABULARY,
                hidden_size=24,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=8,
                num_experts=5,
                moe_intermediate_size=12,
                router_hidden_size=10,
                rms_norm_eps=1e-5,
                max_position_embeddings=64,
                tie_word_embeddings=True,
                rope_parameters={"hybrid": rope},
            ),
            **special_tokens(),
            **over,
        }
    )


MODELS = {
    "gpt2": (gpt2, {}),
    "llama": (llama, {}),
    "llama_tied": (
        llama,
        dict(
            tie_word_embeddings=True,
            hidden_size=21,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=8,
            intermediate_size=36,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        ),
    ),
    "qwen3_moe": (qwen3_moe, {}),
    "qwen3_moe_raw_weights": (qwen3_moe, dict(norm_topk_prob=False, num_experts=5, num_experts_per_tok=3)),
    "zaya_kv2": (zaya, {}),
    "zaya_kv1": (
        zaya,
        dict(
            hidden_size=20,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=12,
            num_experts=4,
            moe_intermediate_size=10,
            router_hidden_size=9,
        ),
    ),
}

FURTHER_MODELS = {**ATTENTION_MODELS, **MOE_MODELS, **option_models(gpt2), **random_models(gpt2, qwen3_moe, zaya)}
MODELS.update((name, entry[:2]) for name, entry in FURTHER_MODELS.items())


def add_draws(count):
    """`count` more random configurations of every family and width, named "llama_random_narrow7"."""
    kinds = [f"{kind}{i}" for kind in ("narrow", "wide") for i in range(count)]
    more = random_models(gpt2, qwen3_moe, zaya, kinds)
    FURTHER_MODELS.update(more)
    MODELS.update((name, entry[:2]) for name, entry in more.items())
    return list(more)


def extras(name):
    return FURTHER_MODELS[name][2] if name in FURTHER_MODELS else {}


def adjust(name, model):
    """Gives the library's model an option that none of its families has."""
    restore()
    if "adjust" in extras(name):
        extras(name)["adjust"](model)


def random_values(name, shape, rng):
    """Generic values: no weight at its neutral point, activations of order one. Rounded to float32."""
    n = rng.standard_normal(shape)
    if name.endswith("balancing_biases"):
        value = 0.05 * n
        value[-1] = -1.0
    elif "temp" in name:
        value = 1.2 + 0.3 * np.clip(n, -2, 2)
    elif name.endswith("bias"):
        value = 0.2 * n
    elif len(shape) == 1:
        value = 1.0 + 0.2 * n
    elif any(part in name for part in ("wte", "embed_tokens", "lm_head")):
        value = 0.35 * n
    elif "wpe" in name:
        value = 0.3 * n
    elif name.endswith("out_proj.weight") or name.endswith("mlp.gate.weight"):
        value = 3.0 * n / math.sqrt(shape[-1])
    elif "conv_qk" in name:
        value = n / math.sqrt(shape[1] * shape[2])
    else:
        fan_in = shape[0] if ".h." in name else shape[-1]  # GPT-2 keeps [in, out]
        value = 1.2 * n / math.sqrt(fan_in)
    return torch.from_numpy(value.astype(np.float32).astype(np.float64))


def layers_of(model):
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def build(name, seed):
    family, over = MODELS[name]
    cls, config = family(**over)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = cls(config).double().eval()
    adjust(name, model)
    rng = np.random.default_rng(seed)
    values = dict(model.named_parameters())  # each tied weight once
    values.update((n, b) for n, b in model.named_buffers() if n.endswith(BIASES))
    with torch.no_grad():
        for tensor_name in sorted(values):
            values[tensor_name].copy_(random_values(tensor_name, tuple(values[tensor_name].shape), rng))
    return model, config, values


def inputs(seed, vocabulary=VOCABULARY):
    rng = np.random.default_rng(seed + 1000)
    total = sum(DOCUMENTS)
    ids = torch.from_numpy(rng.integers(3, vocabulary, total))
    starts = [sum(DOCUMENTS[:i]) for i in range(len(DOCUMENTS))]
    targets = torch.full((total,), NO_TARGET)
    for s, length in zip(starts, DOCUMENTS):
        targets[s : s + length - 1] = ids[s + 1 : s + length]
    targets[[2, starts[2] + 5]] = NO_TARGET  # also holes inside documents
    return ids, starts, targets


def forward_documents(model, ids, starts):
    """Each document alone: the definition of a packed row. Logits, stream after each layer, router data."""
    streams = [[] for _ in layers_of(model)]
    routers = [[] for _ in layers_of(model)]
    hooks = []
    for i, layer in enumerate(layers_of(model)):
        hooks.append(
            layer.register_forward_hook(
                lambda _, __, out, i=i: streams[i].append((out[0] if isinstance(out, tuple) else out)[0])
            )
        )
        if hasattr(layer, "mlp") and hasattr(layer.mlp, "gate"):
            hooks.append(
                layer.mlp.gate.register_forward_hook(
                    lambda _, __, out, i=i: routers[i].append((out[0], out[-1] if len(out) == 3 else out[2]))
                )
            )
    logits = [
        model(input_ids=ids[a:b][None], use_cache=False).logits[0]
        for a, b in zip(starts, starts[1:] + [len(ids)])
    ]
    for hook in hooks:
        hook.remove()
    router = [(torch.cat([r[0] for r in rs]), torch.cat([r[1] for r in rs])) for rs in routers if rs]
    return torch.cat(logits), [torch.cat(s) for s in streams], router


def forward_packed(model, ids, starts):
    """The row at once: restarted positions, block-diagonal causal mask (families without convolutions)."""
    positions, document = zaya_double.document_layout(starts, len(ids))
    t = torch.arange(len(ids))
    visible = (t[:, None] >= t[None]) & (document[:, None] == document[None])
    mask = torch.zeros(1, 1, len(ids), len(ids)).masked_fill(~visible, torch.finfo(torch.float64).min)
    return model(
        input_ids=ids[None], position_ids=positions[None], attention_mask=mask, use_cache=False
    ).logits[0]


def cross_entropy(logits, targets):
    log_probs = logits.log_softmax(-1).gather(1, targets.clamp(min=0)[:, None])[:, 0]
    log_probs = torch.where(targets == NO_TARGET, torch.zeros_like(log_probs), log_probs)
    return log_probs, -log_probs.sum() / (targets != NO_TARGET).sum()


def router_margin(scores, top_k):
    ordered = scores.sort(-1, descending=True).values
    return (ordered[:, top_k - 1] - ordered[:, top_k]).min().item()


def disk_form(name, values):
    """The checkpoint's names and shapes: these families store experts one by one."""
    if not name.startswith(MOE_FAMILIES):
        return values
    out = {}
    for key, value in values.items():
        if key.endswith("experts.gate_up_proj"):
            for e, matrix in enumerate(value):
                gate, up = matrix.chunk(2)
                base = key.removesuffix("gate_up_proj") + f"{e}."
                out[base + "gate_proj.weight"], out[base + "up_proj.weight"] = gate, up
        elif key.endswith("experts.down_proj"):
            for e, matrix in enumerate(value):
                out[key.removesuffix("down_proj") + f"{e}.down_proj.weight"] = matrix
        else:
            out[key] = value
    return mixtral_names(out) if name.startswith("mixtral") else out


def auxiliary_losses(router, num_experts, top_k):
    """Per layer: E / (K T^2) * sum_i n_i sum_t P_ti (perfect balance gives 1), and the z-loss."""
    aux, z = [], []
    for logits, chosen in router:
        counts = torch.bincount(chosen.reshape(-1), minlength=num_experts).double()
        aux.append(num_experts / (top_k * len(logits) ** 2) * (counts * logits.softmax(-1).sum(0)).sum())
        z.append(logits.logsumexp(-1).pow(2).mean())
    return torch.stack(aux), torch.stack(z)


def zaya_settings(config):
    keys = (
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "num_experts",
        "num_hidden_layers",
        "rms_norm_eps",
    )
    return {
        **{k: getattr(config, k) for k in keys},
        **{k: config.rope_parameters["hybrid"][k] for k in ("rope_theta", "partial_rotary_factor")},
    }


def check_zaya(values, config, ids, starts, targets, reference):
    """Our independent module on the packed row against the library's documents one by one."""
    leaves = {
        n: v.detach().clone().requires_grad_(not n.endswith("balancing_biases")) for n, v in values.items()
    }
    logits, streams, routes = zaya_double.forward(ids, starts, leaves, zaya_settings(config))
    _, loss = cross_entropy(logits, targets)
    loss.backward()
    margin = min(router_margin(biased[:, :-1], 1) for _, biased in routes)
    differences = {
        "logits": max_rel(logits, reference["logits"]),
        "streams": max(max_rel(s, reference[f"stream.{i}"]) for i, s in enumerate(streams)),
        "gradients": max(
            max_rel(v.grad, reference[f"grad.{n}"]) for n, v in leaves.items() if v.requires_grad
        ),
    }
    for i, (chosen, _) in enumerate(routes):
        assert torch.equal(chosen, reference[f"experts.{i}"][:, 0])
    return differences, margin


def generate(name, seed):
    """Reference tensors and notes for one model, or None where a router decision is too close for single
    precision or ZAYA1's routers use fewer than three experts."""
    with double_precision():
        model, config, values = build(name, seed)
        ids, starts, targets = inputs(seed, config.vocab_size)
        logits, streams, router = forward_documents(model, ids, starts)
        top_k = getattr(config, "num_experts_per_tok", 0)
        if name.startswith(MOE_FAMILIES):
            biases = [v for n, v in sorted(values.items()) if n.endswith(BIASES)] or [None] * len(router)
            margin = min(routing_margin(config, r[0], b) for r, b in zip(router, biases))
            if margin < MIN_ROUTER_MARGIN:
                return None
        log_probs, loss = cross_entropy(logits, targets)
        loss.backward(retain_graph=True)
        out = {
            "input_ids": ids.int(),
            "document_starts": torch.tensor(starts).int(),
            "targets": targets.int(),
            "logits": logits,
            "log_probs": log_probs,
            "loss": loss,
        }
        out.update((f"stream.{i}", s) for i, s in enumerate(streams))
        out.update((f"router_logits.{i}", r[0]) for i, r in enumerate(router))
        out.update((f"experts.{i}", r[1].sort(-1).values.int()) for i, r in enumerate(router))
        grads = {n: v.grad.clone() for n, v in values.items() if v.grad is not None}
        out.update((f"grad.{n}", g) for n, g in disk_form(name, grads).items())
        notes = {"loss": loss.item()}
        if name.startswith("zaya"):
            notes["independent_module_max_rel"], margin = check_zaya(
                values, config, ids, starts, targets, out
            )
            used = min((torch.bincount(r[1].reshape(-1)) > 0).sum().item() for r in router)
            if margin < MIN_ROUTER_MARGIN or used < 3:
                return None
            assert max(notes["independent_module_max_rel"].values()) < 1e-10, notes
        elif extras(name).get("whole_row", True):
            notes["packed_row_max_rel"] = max_rel(forward_packed(model, ids, starts), logits)
            assert notes["packed_row_max_rel"] < 1e-12, notes
        if router:
            counts = [torch.bincount(r[1].reshape(-1), minlength=experts_of(config)).tolist() for r in router]
            notes.update(router_margin=margin, tokens_per_expert=counts)
        if name.startswith("qwen3_moe"):
            aux, z = auxiliary_losses(router, config.num_experts, top_k)
            total = loss + AUX_COEFFICIENT * aux.sum() + Z_COEFFICIENT * z.sum()
            model.zero_grad()
            total.backward()
            out.update(aux_loss=aux, z_loss=z, total_loss=total)
            grads = {n: v.grad.clone() for n, v in values.items()}
            out.update(
                (f"total_grad.{n}", g)
                for n, g in disk_form(name, grads).items()
                if ".mlp." in n or "embed" in n
            )
            library = load_balancing_loss_func(tuple(r[0] for r in router), config.num_experts, top_k)
            notes.update(
                aux_coefficient=AUX_COEFFICIENT,
                z_coefficient=Z_COEFFICIENT,
                library_aux_loss_over_all_layers_pooled=library.item(),
            )
            assert len(router) > 1 or abs(library.item() - top_k * aux.item()) < 1e-12
        weights = {n: v.detach() for n, v in disk_form(name, values).items()}
    return out, {n: v.to(torch.float32) for n, v in weights.items()}, config, notes


def check_checkpoint(name, folder, reference):
    """The written folder is a checkpoint that the library itself loads."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
    )
    adjust(name, model)
    starts = reference["document_starts"].tolist()
    with torch.no_grad():
        logits, _, _ = forward_documents(model, reference["input_ids"].long(), starts)
    difference = max_rel(logits.double(), reference["logits"])
    assert difference < 1e-4, f"{folder}: reloaded checkpoint differs by {difference}"


def minimal_config(config):
    drop = (
        "transformers_version",
        "_name_or_path",
        "dtype",
        "chunk_size_feed_forward",
        "id2label",
        "label2id",
    )
    settings = {k: v for k, v in config.to_diff_dict().items() if k not in drop}
    return {"architectures": [], **settings, "tie_word_embeddings": bool(config.tie_word_embeddings)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models to make, or with --draws families (default: all)")
    parser.add_argument("--draws", type=int, default=0, help="make so many more random configurations of each family and width")
    parser.add_argument("--folder", type=Path, default=FIXTURES / "models", help="where to write (default: the fixtures)")
    arguments = parser.parse_args()
    names = add_draws(arguments.draws) if arguments.draws else arguments.names or list(MODELS)
    if arguments.draws and arguments.names:
        names = [n for n in names if n.split("_random_")[0] in arguments.names]
    for name in names:
        seed = 1
        while (result := generate(name, seed)) is None:
            seed += 1
        reference, weights, config, notes = result
        if extras(name).get("brief"):
            reference = {k: v for k, v in reference.items() if not k.startswith(BETWEEN)}
        folder = arguments.folder / name
        save_tensors(folder / "model.safetensors", weights)
        save_tensors(folder / "reference.safetensors", reference)
        content = minimal_config(config)
        content["architectures"] = [MODELS[name][0](**MODELS[name][1])[0].__name__]
        (folder / "config.json").write_text(json.dumps(content, indent=1) + "\n")
        if "options" in extras(name):
            (folder / "options.toml").write_text(extras(name)["options"])
        save_json(
            folder / "reference.json",
            {"seed": seed, "documents": DOCUMENTS, "no_target": NO_TARGET, **notes},
            "make_models.py",
        )
        check_checkpoint(name, folder, reference)
        print(name, "seed", seed, {k: v for k, v in notes.items()})


if __name__ == "__main__":
    main()
