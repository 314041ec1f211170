"""Multi-token prediction: a Llama of transformers with modules on top that this script composes from its decoder layers,
in double precision, documents one by one. Writes tests/fixtures/mtp/ under Ingot's names; see README.md."""

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm

from common import FIXTURES, double_precision, save_json, save_tensors

DOCUMENTS = (11, 1, 17, 2, 9)
NO_TARGET = -1
COEFFICIENT = 0.3
SIZES = dict(vocab_size=57, hidden_size=22, intermediate_size=30, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=8, rms_norm_eps=1e-5, max_position_embeddings=64)
CASES = {
    "separate": dict(depths=2, shared=False, sizes=SIZES),
    "shared": dict(depths=3, shared=True, sizes=SIZES),
    "wide": dict(depths=1, shared=False, sizes=dict(SIZES, vocab_size=75, hidden_size=39, intermediate_size=17,
                 num_hidden_layers=1, num_attention_heads=3, num_key_value_heads=3, head_dim=6, rms_norm_eps=1e-3)),
}


class Module(torch.nn.Module):
    """Depth k: norms of the next embedding and of the stream before, concatenated, projected, one layer, a norm."""

    def __init__(self, config, layer):
        super().__init__()
        width = config.hidden_size
        self.embedding_norm = LlamaRMSNorm(width, config.rms_norm_eps)
        self.hidden_norm = LlamaRMSNorm(width, config.rms_norm_eps)
        self.projection = torch.nn.Linear(2 * width, width, bias=False)
        self.layer = LlamaDecoderLayer(config, layer)
        self.final_norm = LlamaRMSNorm(width, config.rms_norm_eps)


class Predictor(torch.nn.Module):
    def __init__(self, config, modules):
        super().__init__()
        self.base = LlamaForCausalLM(config)
        self.ahead = torch.nn.ModuleList(Module(config, config.num_hidden_layers - 1) for _ in range(modules))

    def document(self, ids, depths):
        """Logits [tokens, V] of the next token, then of each depth on the rows that have an id so far ahead."""
        base, n = self.base, len(ids)
        mask = torch.full((n, n), torch.finfo(torch.float64).min).triu(1)[None, None]
        positions = torch.arange(n)[None]
        embedded = base.model.embed_tokens(ids)[None]
        rotary = base.model.rotary_emb(embedded, positions)
        run = lambda layer, x, m, r: layer(x, attention_mask=m, position_ids=positions[:, : x.shape[1]], position_embeddings=r)
        stream = embedded
        for layer in base.model.layers:
            stream = run(layer, stream, mask, rotary)
        logits = [base.lm_head(base.model.norm(stream))[0]]
        for k in range(1, depths + 1):
            module, rows = self.ahead[(k - 1) % len(self.ahead)], max(0, n - k)
            parts = module.embedding_norm(embedded[:, k:]), module.hidden_norm(stream[:, :rows])
            stream = module.projection(torch.cat(parts, -1))
            if rows:
                stream = run(module.layer, stream, mask[..., :rows, :rows], tuple(r[:, :rows] for r in rotary))
            logits.append(base.lm_head(module.final_norm(stream))[0])
        return logits


def our_names(named, sizes):
    """Ingot's names: q, k, v packed in rows, gate and up packed, the projection in two halves."""
    out = {}
    for name, value in named.items():
        if name.startswith("base."):
            name = name.removeprefix("base.").removeprefix("model.")
        if name.startswith("ahead."):
            number, rest = name.removeprefix("ahead.").split(".", 1)
            layer = f"layers.{sizes['num_hidden_layers'] + int(number)}."
            name = layer + (rest.removeprefix("layer.") if rest.startswith("layer.") else "ahead." + rest)
        for theirs, ours in {"embed_tokens": "embed", "input_layernorm": "attention_norm", "self_attn": "attention",
                             "post_attention_layernorm": "mlp_norm", "o_proj": "out", "down_proj": "down"}.items():
            name = name.replace(theirs, ours)
        out["final_norm.weight" if name == "norm.weight" else name] = value
    for name in [n for n in out if n.endswith("q_proj.weight")]:
        stem = name.removesuffix("q_proj.weight")
        out[stem + "qkv.weight"] = torch.cat([out.pop(stem + f"{part}_proj.weight") for part in "qkv"])
    for name in [n for n in out if n.endswith("gate_proj.weight")]:
        stem = name.removesuffix("gate_proj.weight")
        out[stem + "gate_up.weight"] = torch.cat([out.pop(stem + f"{part}_proj.weight") for part in ("gate", "up")])
    for name in [n for n in out if n.endswith("projection.weight")]:
        stem, width = name.removesuffix("projection.weight"), sizes["hidden_size"]
        both = out.pop(name)
        out[stem + "from_embedding.weight"], out[stem + "from_hidden.weight"] = both[:, :width], both[:, width:]
    return out


def make(name, depths, shared, sizes):
    rng = np.random.default_rng(7)
    config = LlamaConfig(**sizes, tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    config._attn_implementation = "eager"
    model = Predictor(config, 1 if shared else depths).double()
    with torch.no_grad():
        for _, p in sorted(model.named_parameters()):
            n = rng.standard_normal(p.shape)
            value = 1 + 0.2 * n if p.dim() == 1 else n / np.sqrt(p.shape[-1])
            p.copy_(torch.from_numpy(value.astype(np.float32).astype(np.float64)))
    tokens = sum(DOCUMENTS)
    ids = torch.from_numpy(rng.integers(3, config.vocab_size, tokens))
    logits = [torch.zeros(tokens, config.vocab_size) for _ in range(depths + 1)]
    targets = torch.full((depths + 1, tokens), NO_TARGET)
    start = 0
    for count in DOCUMENTS:
        for k, part in enumerate(model.document(ids[start : start + count], depths)):
            logits[k][start : start + len(part)] = part
            targets[k, start : start + max(0, count - k - 1)] = ids[start + k + 1 : start + count]
        start += count
    losses = []
    for k in range(depths + 1):
        valid = targets[k] >= 0
        losses.append(-logits[k].log_softmax(-1)[valid].gather(1, targets[k][valid][:, None]).mean())
    total = losses[0] + COEFFICIENT / depths * sum(losses[1:])
    total.backward()
    named = dict(model.named_parameters())
    tensors = {f"{name}.{k}": v.float() for k, v in our_names({k: v.detach() for k, v in named.items()}, sizes).items()}
    tensors.update((f"{name}.grad.{k}", v) for k, v in our_names({k: v.grad for k, v in named.items()}, sizes).items())
    tensors[f"{name}.input_ids"] = ids.int()
    tensors[f"{name}.losses"] = torch.stack(losses).detach()
    tensors.update((f"{name}.logits.{k}", v.detach()) for k, v in enumerate(logits))
    return tensors


def main():
    with double_precision():
        tensors = {}
        for name, case in CASES.items():
            tensors.update(make(name, **case))
    folder = FIXTURES / "mtp"
    single = {k: v.to(torch.float32) if ".grad." not in k and v.is_floating_point() and ".lo" not in k else v for k, v in tensors.items()}
    save_tensors(folder / "mtp.safetensors", single)
    save_json(folder / "mtp.json", {"documents": DOCUMENTS, "coefficient": COEFFICIENT, "cases": CASES}, "make_mtp.py")
    print({k: v.tolist() for k, v in tensors.items() if k.endswith("losses")})


if __name__ == "__main__":
    main()
