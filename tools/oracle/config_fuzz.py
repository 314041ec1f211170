"""config.json field by field: what transformers computes with one field changed, and whether Ingot computes the same or
refuses it by name. Tiny models of every family; each field is left out, set to null, to another type and to other values, and
each family meets the fields of the others. The other way round, models with one of Ingot's options changed are exported
and computed by transformers.

    config_fuzz.py run TEST_PROGRAM        makes the cases, runs them in ingot_test_oracle, and sums up
    config_fuzz.py fixture TEST_PROGRAM    the same, and writes those that CI holds to tests/fixtures/config_fuzz.jsonl

Weights are a function of their names (tests/models/config_fuzz_oracle_test.cpp has the same), in double precision."""

import argparse
import copy
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from common import FIXTURES, double_precision, max_rel

TOKENS, COMPARED, TOLERANCE = 12, 2, 1e-9
MASK = (1 << 64) - 1


def fnv1a(text):
    h = 0xCBF29CE484222325
    for c in text.encode():
        h = ((h ^ c) * 0x100000001B3) & MASK
    return h


def uniform(name, count):
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) / 8388608.0 - 1


def weight_values(name, shape):
    offset, scale = 0.0, 0.0
    if "balancing_biases" in name:
        scale = 0.125
    elif name.endswith("temp"):
        offset, scale = 1.25, 0.5
    elif name.endswith("bias"):
        scale = 0.25
    elif len(shape) == 1:
        offset, scale = 1.0, 0.5
    elif any(part in name for part in ("embed_tokens", "lm_head", "wte.", "wpe.")):
        scale = 0.75
    else:
        fan = shape[1] * shape[2] if "conv_qk" in name else shape[0] if ".h." in name else shape[-1]
        router = name.endswith("gate.weight") or name.endswith("out_proj.weight")
        scale = (6.0 if router else 2.0) / math.sqrt(fan)
    values = offset + scale * uniform(name, math.prod(shape))
    if "balancing_biases" in name:
        values[-1] = -1
    return values.reshape(shape)


def stored_tensors(model, family):
    """(name in files, shape, where its values go) for everything that save_pretrained would write."""
    tensors = dict(model.named_parameters())
    kept = model.state_dict()
    tensors.update((n, b) for n, b in model.named_buffers() if n in kept)
    for name, tensor in tensors.items():
        if family == "mixtral":
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if family == "zaya" or not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            yield name, tuple(tensor.shape), tensor
            continue
        stem, parts = name.rsplit(".", 1)
        mixtral = family == "mixtral"
        for x in range(tensor.shape[0]):
            if parts == "down_proj":
                yield f"{stem}.{x}.{'w2' if mixtral else 'down_proj'}.weight", tuple(tensor.shape[1:]), tensor[x]
                continue
            half = tensor.shape[1] // 2
            yield f"{stem}.{x}.{'w1' if mixtral else 'gate_proj'}.weight", (half, tensor.shape[2]), tensor[x, :half]
            yield f"{stem}.{x}.{'w3' if mixtral else 'up_proj'}.weight", (half, tensor.shape[2]), tensor[x, half:]


def digest(tensors):
    return fnv1a("".join(f"{name}{''.join(f' {n}' for n in shape)}\n" for name, shape in sorted(tensors)))


def compute(config_json, proven=False):
    """(digest of the tensors, logits of the last tokens) of a config; an exception where transformers refuses."""
    fields = json.loads(config_json)
    config = CONFIG_MAPPING[fields["model_type"]].from_dict(fields)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    with double_precision(proven):
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).double().eval()
        tensors = list(stored_tensors(model, fields["model_type"]))
        with torch.no_grad():
            for name, shape, tensor in tensors:
                tensor.copy_(torch.from_numpy(weight_values(name, shape)))
        vocab = model.get_input_embeddings().weight.shape[0]
        ids = torch.tensor([[(5 * t + 3) % vocab for t in range(TOKENS)]])
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[0, -COMPARED:]
    return digest([(n, s) for n, s, _ in tensors]), logits


SIZES = dict(
    vocab_size=23,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    hidden_act="silu",
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    initializer_range=0.02,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
    tie_word_embeddings=False,
    attention_dropout=0.0,
    use_cache=True,
)
PLAIN = {"rope_type": "default", "rope_theta": 1000.0}
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = dict(
    rope_type="llama3", rope_theta=1000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
)
EXPERTS = dict(num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.001)
SIGMOID = dict(
    moe_intermediate_size=12,
    n_routed_experts=8,
    n_shared_experts=1,
    num_experts_per_tok=4,
    n_group=4,
    topk_group=2,
    first_k_dense_replace=1,
    norm_topk_prob=True,
    routed_scaling_factor=1.5,
)
LATENT = dict(
    num_key_value_heads=4,
    q_lora_rank=10,
    kv_lora_rank=12,
    qk_nope_head_dim=6,
    qk_rope_head_dim=4,
    v_head_dim=7,
    rope_interleave=True,
)


def family(model_type, *without, **more):
    fields = {"model_type": model_type, **SIZES, "rope_parameters": PLAIN, **more}
    return {k: v for k, v in fields.items() if k not in without}


BASES = {
    "gpt2": dict(
        model_type="gpt2", vocab_size=23, n_positions=32, n_embd=16, n_layer=2, n_head=4, n_inner=24, activation_function="gelu_new",
        layer_norm_epsilon=1e-5, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1, initializer_range=0.02, bos_token_id=1,
        eos_token_id=2, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, reorder_and_upcast_attn=False,
        add_cross_attention=False, tie_word_embeddings=True, use_cache=True,
    ),
    "llama": family("llama", attention_bias=False, mlp_bias=False, pretraining_tp=1),
    "llama_llama3": family("llama", attention_bias=False, mlp_bias=False, rope_parameters=LLAMA3),
    "llama_older": family("llama", "rope_parameters", rope_theta=500.0, rope_scaling={**YARN, "type": "yarn"}, torch_dtype="float32"),
    "mistral": family("mistral", sliding_window=5),
    "mixtral": family("mixtral", sliding_window=None, num_local_experts=5, router_jitter_noise=0.0, **EXPERTS),
    "qwen3": family("qwen3", attention_bias=False, use_sliding_window=True, sliding_window=5, max_window_layers=1),
    "qwen3_moe": family(
        "qwen3_moe", attention_bias=False, use_sliding_window=False, sliding_window=None, max_window_layers=2, num_experts=6,
        moe_intermediate_size=12, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], **EXPERTS,
    ),
    "smollm3": family(
        "smollm3", attention_bias=False, mlp_bias=False, use_sliding_window=True, sliding_window=5, no_rope_layers=[1, 0],
        no_rope_layer_interval=2,
    ),
    "dots1": family("dots1", attention_bias=False, sliding_window=5, max_window_layers=1, **SIGMOID),
    "deepseek_v3": family("deepseek_v3", "head_dim", attention_bias=False, **{**LATENT, **SIGMOID}),
    "deepseek_v3_yarn": family(
        "deepseek_v3", "head_dim", rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 0.7}, **{**LATENT, **SIGMOID}
    ),
    "zaya": family(
        "zaya", "intermediate_size", num_experts=5, num_experts_per_tok=1, moe_intermediate_size=12, router_hidden_size=10,
        cca_time0=2, cca_time1=2, lm_head_bias=False, attention_bias=False, tie_word_embeddings=True, sliding_window=None,
        layer_types=["hybrid", "hybrid"],
        rope_parameters={"hybrid": {**PLAIN, "partial_rotary_factor": 0.5}},
    ),
}

SLIDES, FULL = "sliding_attention", "full_attention"
TWO_ROPES = {FULL: {**PLAIN, "rope_theta": 500.0, "rope_type": "linear", "factor": 2.0}, SLIDES: PLAIN}
GEMMA = dict(hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=6, attention_bias=False, tie_word_embeddings=True,
             final_logit_softcapping=None, attn_logit_softcapping=None, use_bidirectional_attention=None)
BASES.update({
    "qwen2": family("qwen2", "head_dim", use_sliding_window=True, sliding_window=5, max_window_layers=1),
    "olmo2": family("olmo2", attention_bias=False),
    "olmo3": family("olmo3", attention_bias=False, sliding_window=5, layer_types=[SLIDES, FULL], rope_parameters=TWO_ROPES),
    "phi3": family("phi3", sliding_window=5, resid_pdrop=0.1, embd_pdrop=0.1, original_max_position_embeddings=64,
                   rope_parameters={**PLAIN, "partial_rotary_factor": 0.5}),
    "granite": family("granite", attention_bias=False, mlp_bias=False, embedding_multiplier=3.0, logits_scaling=2.0,
                      residual_multiplier=0.5, attention_multiplier=0.25),
    "gemma": family("gemma", "hidden_act", hidden_act="gelu_pytorch_tanh", attention_bias=False, use_bidirectional_attention=None),
    "gemma2": family("gemma2", "hidden_act", sliding_window=5, layer_types=[FULL, SLIDES],
                     **{**GEMMA, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0}),
    "gemma3_text": family("gemma3_text", "hidden_act", sliding_window=5, layer_types=[SLIDES, FULL], **{**GEMMA, "rope_parameters": TWO_ROPES}),
    "gemma3_text_older": family("gemma3_text", "hidden_act", "rope_parameters", rope_theta=700.0, rope_local_base_freq=50.0, sliding_window=5,
                                rope_scaling={"rope_type": "linear", "factor": 3.0}, sliding_window_pattern=2, **GEMMA),
})
# Fields that some family or the base class has, with values that would change something there.
FOREIGN = {
    "sliding_window": [None, 0, 5, 7],
    "use_sliding_window": [True, False],
    "max_window_layers": [0, 1, 2, 5],
    "layer_types": [[SLIDES, FULL], [FULL, SLIDES], [SLIDES, SLIDES], [FULL, FULL], [SLIDES], ["chunked_attention", FULL],
                    ["hybrid", "hybrid_sliding"], None],
    "rope_theta": [300.0, 10000, None, 0.5, "x"],
    "partial_rotary_factor": [0.5, 1.0, None],
    "original_max_position_embeddings": [8, 16, None],
    "rope_scaling": [None, {}, {"type": "linear", "factor": 2.0}, {"rope_type": "linear", "factor": 2.0, "rope_theta": 300.0},
                     {"rope_type": "dynamic", "factor": 2.0}, YARN, LLAMA3, {"rope_type": "yarn", "factor": 4.0},
                     {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0}, {"type": "default"}, "linear"],
    "rope_parameters": [None, {}, {"rope_theta": 300.0}, YARN, LLAMA3, {"rope_type": "linear", "factor": 3.0},
                        {"hybrid": PLAIN}, {"full_attention": PLAIN}, {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0},
                        {**YARN, "mscale_all_dim": 1.0}, {**YARN, "mscale": 0.7}, {**YARN, "attention_factor": 1.3},
                        {**YARN, "truncate": False}, {**YARN, "beta_fast": 8.0, "beta_slow": 0.5}, {**YARN, "beta_fast": 0},
                        {"rope_type": "linear", "factor": 2.0, "mscale_all_dim": 1.0}, {**PLAIN, "partial_rotary_factor": 0.5},
                        {"rope_type": "longrope", "factor": 4.0}, {**PLAIN, "mrope_section": [1, 1, 2]}],
    "attention_bias": [True, None],
    "mlp_bias": [True],
    "head_dim": [4, 8, None, 0],
    "hidden_act": ["gelu", "gelu_pytorch_tanh", "relu", "swish"],
    "tie_word_embeddings": [True, False, None],
    "no_rope_layers": [[0, 1], [1, 1], [0, 0], [2, 0], [1], [1, 0, 1], None],
    "no_rope_layer_interval": [0, 1, 2, 3, -2],
    "num_local_experts": [3, 7],
    "num_experts": [3, 7],
    "n_routed_experts": [6],
    "num_experts_per_tok": [1, 2, 3, 4],
    "norm_topk_prob": [True, False],
    "n_group": [1, 2, 4, 8, 3],
    "topk_group": [1, 2, 3, 4],
    "routed_scaling_factor": [0.5, -1.0, 0],
    "first_k_dense_replace": [0, 1, 2, 5],
    "scoring_func": ["softmax", "sigmoid"],
    "sliding_window_pattern": [1, 3, 0],
    "rope_local_base_freq": [300.0],
    "final_logit_softcapping": [2.0, 0.0],
    "attn_logit_softcapping": [2.0],
    "query_pre_attn_scalar": [9, 0],
    "hidden_activation": ["silu", "gelu"],
    "residual_multiplier": [0.5],
    "embedding_multiplier": [2.0],
    "logits_scaling": [2.0],
    "attention_multiplier": [0.2],
    "clip_qkv": [0.5],
    "decoder_sparse_step": [2],
    "mlp_only_layers": [[0]],
    "qk_head_dim": [10, 3],
    "rope_interleave": [False],
    "q_lora_rank": [None, 0, 7],
    "num_nextn_predict_layers": [0, 1, 2],
    "lm_head_bias": [True],
    "cca_time0": [3],
    "is_causal": [False],
    "is_encoder_decoder": [True],
    "attention_chunk_size": [4],
    "use_bidirectional_attention": [True],
    "logit_softcapping": [3.0],
    "quantization_config": [{"quant_method": "fp8"}],
    "per_layer_config": [{"0": {"sliding_window": 3}}],
    "scale_attn_by_inverse_layer_idx": [True],
    "scale_attn_weights": [False],
    "add_cross_attention": [True],
    "output_attentions": [True],
    "pretraining_tp": [2],
    "temperature": [0.5],
    "torch_dtype": ["bfloat16", "float16"],
    "hidden_size": [12, 32],
    "num_hidden_layers": [1, 3],
    "num_attention_heads": [2],
    "max_position_embeddings": [16, 128],
    "intermediate_size": [8],
    "architectures": [["Other"]],
    "router_jitter_noise": [0.5],
    "eos_token_id": [[1, 2], [1, 99], 99, "x", 1.5, None],
    "bos_token_id": [[1], 99, "x", -1],
    "pad_token_id": [-1, 99, "x"],
    "something_else": [1],
}


def changes_of(value):
    """Other values for a field that has this one."""
    if isinstance(value, bool):
        return [not value, None, 1, "x"]
    if isinstance(value, int):
        return [0, 1, -1, value + 1, max(1, value // 2), 2 * value, value + 0.5, float(value), None, "x", True, [value]]
    if isinstance(value, float):
        return [0.0, -value, 2 * value, 1, 1e-30, 1e30, None, "x", True]
    if isinstance(value, str):
        return ["other", None, 1]
    if isinstance(value, list):
        return [[], None, value[:1], value + value, "x", [1] * len(value)]
    if value is None:
        return [0, 1, "x", True]
    return [{}, None, "x", 1]


ABSENT = object()


def import_cases():
    seen = set()
    for base, fields in BASES.items():
        for path, value in variants(fields):
            changed = copy.deepcopy(fields)
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            if value is ABSENT:
                del inner[path[-1]]
            else:
                inner[path[-1]] = copy.deepcopy(value)
            text = json.dumps(changed)
            if (base, text) in seen or changed == fields and value is not ABSENT:
                continue
            seen.add((base, text))
            shown = "absent" if value is ABSENT else json.dumps(value)
            yield {"name": f"{base}: {'.'.join(path)} = {shown}", "field": path[-1], "config": text}


def variants(fields):
    for key, value in fields.items():
        if key == "model_type":
            continue
        yield (key,), ABSENT
        for other in changes_of(value):
            yield (key,), other
        kinds = [k for k in ("hybrid", FULL, SLIDES) if isinstance(value, dict) and k in value]
        for stem in [(key, k) for k in kinds] or [(key,)]:
            if not isinstance(value, dict):
                continue
            for name, of in (value[stem[-1]] if kinds else value).items():
                yield (*stem, name), ABSENT
                for other in changes_of(of):
                    yield (*stem, name), other
            if kinds:
                yield stem, ABSENT
                yield stem, None
            for name, others in dict(attention_factor=[1.3, 0.0], mscale=[0.7], mscale_all_dim=[0.7], truncate=[False], factor=[1.0, 3.0],
                                     partial_rotary_factor=[0.5, 0.75, 0.3], beta_fast=[8.0], beta_slow=[0.5], rope_theta=[300.0],
                                     rope_type=["yarn", "linear", "llama3", "dynamic", "longrope", "proportional"],
                                     type=["yarn", "linear"], original_max_position_embeddings=[8, 32],
                                     low_freq_factor=[2.0], high_freq_factor=[1.5], something=[1]).items():
                for other in others:
                    yield (*stem, name), other
    for key, values in FOREIGN.items():
        for value in values:
            yield (key,), value


# Ingot's options, for export.
OPTIONS = """window=5 window=5,window_pattern=SF window=5,window_pattern=FS window=5,window_pattern=FF window=6,window_pattern=HS
window=4,window_block=2 window=5,window_rope_theta=100 rope_theta=300 rotary_fraction=0.5 half_truncated_rope=true
interleaved_rope=true rope_pattern=RN rope_pattern=NR rope_pattern=NN rope_pattern=RR qk_norm=true qk_norm=false logit_softcap=5
attention_scale=0.2 norm=layer norm=layer,norm_bias=true norm=rms norm_eps=1e-3 norm_weight=false mlp=geglu mlp=gelu mlp=gelu_tanh
mlp=relu2 mlp=swiglu attention_bias=true attention_bias=false mlp_bias=true mlp_bias=false residual=scaled residual=plain
embedding_norm=true input_mix=true unet_skips=true value_embeddings=1 tied=true tied=false head_cap.kind=tanh head_cap.kind=sigmoid
head_multiple=8 head_multiple=32 init_std=0.5 scale_output_init=true mup_base_width=8 mtp.depths=1 mtp.depths=2,mtp.shared=true
moe.experts=4,moe.hidden=8 moe.experts=4,moe.hidden=8,moe.top_k=2 moe.experts=0 moe.experts=1 moe.top_k=1 moe.top_k=2 moe.top_k=3
moe.hidden=8 moe.shared_hidden=8 moe.shared_hidden=12 moe.shared_hidden=24 moe.shared_hidden=0 moe.latent=8 moe.first_dense=0
moe.first_dense=1 moe.first_dense=2 moe.router=zaya moe.router=linear moe.score=softmax_first moe.score=softmax_last moe.score=sigmoid
moe.normalize=true moe.normalize=false moe.scale=2 moe.scale=1 moe.groups=2 moe.groups=4,moe.groups_kept=4 moe.groups=2,moe.groups_kept=1
moe.groups=4,moe.groups_kept=2 moe.groups=1,moe.groups_kept=1 moe.selection=sinkhorn moe.selection=expert_choice,moe.capacity_factor=1
moe.capacity_factor=1.5 moe.router_width=6 moe.skip_class=true moe.skip_class=false moe.balance=none moe.balance=sign moe.balance=adamw
moe.aux_coefficient=0.1 lora.rank=2 position=learned position=none position=rope attention=mla attention=cca attention=gqa
attention=mla,kv_heads=4,head_width=0,mla.kv_rank=6,mla.nope_width=4,mla.rope_width=4,mla.value_width=5
mla.q_rank=0 mla.q_rank=5 mla.norm_eps=1e-3 mla.value_width=3 head_width=4 head_width=0 heads=2 kv_heads=1 kv_heads=4 hidden=9 context=16
norm_position=after norm_position=both norm_position=before norm_offset=1 norm_offset=0 qk_norm=true,qk_norm_joint=true qk_norm_joint=false
attention_bias=true,attention_out_bias=false attention_out_bias=true sublayer_scale=0.5 embedding_scale=2 embedding_scale=4 logit_divisor=2
window_rope_scaling=false window_rope_theta=0 window_rope_theta=100 window=0,window_pattern=,window_rope_theta=0,window_rope_scaling=true
attention_pattern=NA attention_pattern=AN width=32 vocab=29 layers=1 layers=3
rope_scaling.kind=none rope_scaling.kind=linear,rope_scaling.factor=2 rope_scaling.kind=linear,rope_scaling.factor=2,rope_scaling.mscale_all_dim=1
rope_scaling.kind=llama3,rope_scaling.factor=8,rope_scaling.original_context=16
rope_scaling.kind=yarn,rope_scaling.factor=4,rope_scaling.original_context=16
rope_scaling.kind=yarn,rope_scaling.factor=4,rope_scaling.original_context=16,rope_scaling.mscale=0.7
rope_scaling.kind=yarn,rope_scaling.factor=4,rope_scaling.original_context=16,rope_scaling.mscale_all_dim=0.7
rope_scaling.kind=yarn,rope_scaling.factor=4,rope_scaling.original_context=16,rope_scaling.mscale=0.7,rope_scaling.mscale_all_dim=1
rope_scaling.kind=yarn,rope_scaling.factor=4,rope_scaling.original_context=16,rope_scaling.attention_factor=1.2
rope_scaling.kind=yarn,rope_scaling.factor=4,rope_scaling.original_context=16,rope_scaling.beta_fast=8,rope_scaling.beta_slow=0.5""".split()


def export_cases():
    for base, fields in BASES.items():
        for options in OPTIONS:
            yield {"name": f"export {base}: {options}", "config": json.dumps(fields), "options": options.split(",")}


def with_reference(case):
    try:
        tensors, logits = compute(case["config"])
        case["tensors"] = tensors
        if torch.isfinite(logits).all():
            case["logits"] = [float(x) for x in logits.flatten()]
    except Exception as e:  # whatever transformers says: it does not compute this
        case["transformers"] = f"{type(e).__name__}: {str(e)[:200]}"
    return case


def run_program(program, cases, folder):
    file, outcomes = folder / "cases.jsonl", folder / "outcomes.jsonl"
    file.write_text("".join(json.dumps(c) + "\n" for c in cases))
    environment = dict(os.environ, INGOT_CONFIG_CASES=str(file), INGOT_CONFIG_OUTCOMES=str(outcomes), INGOT_THREADS="1")
    done = subprocess.run([program, "--gtest_filter=ConfigFuzz.*", "--gtest_brief=1"], env=environment, capture_output=True, text=True)
    if not outcomes.exists():
        sys.exit(f"the program ended with {done.returncode} and no outcomes:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return [json.loads(line) for line in outcomes.read_text().splitlines()]


def check_export(outcome):
    try:
        tensors, logits = compute(outcome["config"])
    except Exception as e:
        return f"transformers refuses what was written: {type(e).__name__}: {str(e)[:200]}"
    if tensors != outcome["tensors"]:
        return "other tensors than transformers has"
    difference = max_rel(torch.tensor(outcome["logits"], dtype=torch.float64), logits.flatten())
    return None if difference <= TOLERANCE else f"logits {difference:.2e} off"


def summarize(cases, outcomes):
    bad, counts = [], Counter()
    for case, o in zip(cases, outcomes):
        kind = o["outcome"]
        if "options" in case:
            problem = check_export(o) if kind == "written" else o["message"] if kind == "internal" else None
            kind = f"export: {'equal' if kind == 'written' and problem is None else kind}"
        else:
            problem = f"{kind} {o.get('difference', o.get('message'))}" if kind in ("different", "internal") else None
            if kind == "refused":
                keys = [case["field"], *re.findall(r'"(\w+)":', case["name"])]
                named = any(key in o["message"] for key in keys)
                both = "logits" not in case
                tensors = o["message"] == "other tensors"
                kind = "refused by both" if both else "refused by its tensors" if tensors else "refused by name"
                kind += "" if both or tensors or named else ", that of another field"
                if kind.endswith("another field"):
                    print(f"another: {case['name']}: {o['message'][:200]}")
            elif kind == "accepted":
                kind = "accepted, where transformers fails"
                print(f"accepted: {case['name']}: {case.get('transformers', 'not finite')}")
        counts[kind] += 1
        if problem:
            bad.append(f"{case['name']}: {problem}")
    for kind, n in sorted(counts.items()):
        print(f"{n:6} {kind}")
    print("\n".join(bad))
    print(f"{len(cases)} cases, {len(bad)} silent differences, crashes and internal errors")
    return not bad


# Of what the test of CI holds: one case in EACH, chosen by name, and those whose names hold one of these.
EACH, HELD = 29, (
    "qwen3_moe: max_window_layers",
    "qwen3: max_window_layers = absent",
    "smollm3: layer_types = null",
    "mixtral: rms_norm_eps = absent",
    "mixtral: rope_parameters = null",
    "zaya: rope_parameters = absent",
    "zaya: rms_norm_eps = absent",
    "zaya: attention_bias = true",
    "deepseek_v3: n_group = absent",
    "deepseek_v3: topk_group = 4",
    "llama_older: rope_parameters",
    "mscale_all_dim",
    "gpt2: tie_word_embeddings = false",
    "llama: partial_rotary_factor = 0.5",
    "export qwen3_moe: window=5",
    "export mixtral: attention_bias=true",
    "export gpt2: mlp=geglu",
    "export zaya: attention_bias=true",
    "export zaya: rope_scaling.kind=yarn",
)


def is_held(name):
    return fnv1a(name) % EACH == 0 or any(part in name for part in HELD)


def fixture(cases, outcomes):
    """The held cases with what Ingot does now, which the run before has shown to be right. Others stay as they are."""
    file, names = FIXTURES / "config_fuzz.jsonl", {c["name"] for c in cases}
    lines = [line + "\n" for line in file.read_text().splitlines() if json.loads(line)["name"] not in names]
    for case, o in zip(cases, outcomes):
        if not is_held(case["name"]) or "too short" in o.get("message", ""):
            continue
        kept = {k: case[k] for k in ("name", "config", "options", "tensors") if k in case}
        kept["expected"] = o["outcome"]
        logits = case.get("logits") or o.get("logits")  # those of what was written are transformers' too
        if logits:
            kept["logits"] = [float(f"{x:.12g}") for x in logits]
        if o["outcome"] == "refused":
            words = case.get("field", "")
            kept["words"] = words if words in o["message"] else ""
        lines.append(json.dumps(kept) + "\n")
    file.write_text("".join(lines))


def quiet():
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    torch.set_num_threads(1)


def all_cases(only, file):
    """The cases, in an order without order, with what transformers computes, kept in a file as they are made: a run that
    was stopped resumes, and Ingot can be run again alone."""
    done = {c["name"]: c for c in map(json.loads, file.read_text().splitlines())} if file.exists() else {}
    cases = [c for c in [*import_cases(), *export_cases()] if re.search(only, c["name"])]
    cases.sort(key=lambda c: fnv1a(c["name"]))
    for base in BASES.values():
        compute(json.dumps(base), proven=True)
    with file.open("a") as out:
        for case in cases:
            if "options" not in case and case["name"] not in done:
                done[case["name"]] = with_reference(case)
                out.write(json.dumps(case) + "\n")
                out.flush()
    return [done.get(c["name"], c) for c in cases]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["cases", "run", "fixture"])
    parser.add_argument("program", nargs="?", help="ingot_test_oracle, for run and fixture")
    parser.add_argument("--keep", help="a folder for cases and outcomes; cases that are there are not made again")
    parser.add_argument("--only", default="", help="cases whose name this regular expression finds")
    o = parser.parse_args()
    quiet()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(o.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cases = all_cases(o.only, folder / "references.jsonl")
        if o.mode == "cases":
            return
        outcomes = run_program(o.program, cases, folder)
        good = summarize(cases, outcomes)
        if o.mode == "fixture" and good:
            fixture(cases, outcomes)
        sys.exit(not good)


if __name__ == "__main__":
    main()
