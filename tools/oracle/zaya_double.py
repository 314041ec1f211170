"""ZAYA1's forward pass as plain double-precision tensor algebra over one row of packed documents: it shares
no code with any library and checks theirs and ours. Weights are a dict with the checkpoint's names.

Document boundaries reset everything that looks back: z = 0 before the start (so the depthwise convolution
yields its bias there), the delayed value is 0, positions restart and attention stays inside the document."""

import math

import torch
import torch.nn.functional as F


def rms_norm(x, weight, eps):
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def previous(x, starts):
    """Row t becomes row t-1; rows at a document start become zero."""
    shifted = torch.zeros_like(x)
    shifted[1:] = x[:-1]
    keep = torch.ones(len(x), 1)
    keep[starts] = 0
    return shifted * keep


def document_layout(starts, length):
    """Position inside the document and the document's number, for each token."""
    begin = torch.zeros(length, dtype=torch.long)
    number = torch.zeros(length, dtype=torch.long)
    for i, s in enumerate(starts):
        begin[s:] = s
        number[s:] = i
    return torch.arange(length) - begin, number


def rope(x, positions, theta, rotary_dim):
    """x [T, heads, K]; rotates the first rotary_dim dims, pairing i with i + rotary_dim/2."""
    half = rotary_dim // 2
    angle = positions[:, None].double() * theta ** (-2.0 * torch.arange(half).double() / rotary_dim)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b, rest = x[..., :half], x[..., half:rotary_dim], x[..., rotary_dim:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def cca(h, w, prefix, c, starts):
    """Compressed convolutional attention. h [T, D] -> [T, D]."""
    H, G, K = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    group, T = H // G, len(h)
    p = prefix + "qkv_proj."
    q, k = h @ w[p + "q_proj.weight"].T, h @ w[p + "k_proj.weight"].T
    z = torch.cat([q, k], -1)
    # Two causal convolutions over one padding: u before the start is the depthwise bias, not zero.
    a, b0 = w[p + "conv_qk_depthwise.weight"][:, 0], w[p + "conv_qk_depthwise.bias"]
    u = a[:, 0] * previous(z, starts) + a[:, 1] * z + b0
    at_start = torch.zeros(T, 1)
    at_start[starts] = 1
    u_old = previous(u, starts) + at_start * b0
    taps = w[p + "conv_qk_grouped.weight"].reshape(H + G, K, K, 2)  # [head, out, in, tap]
    heads = lambda t: t.reshape(T, -1, K)
    conv = (
        torch.einsum("noi,tni->tno", taps[..., 0], heads(u_old))
        + torch.einsum("noi,tni->tno", taps[..., 1], heads(u))
        + w[p + "conv_qk_grouped.bias"].reshape(H + G, K)
    )
    mean_q = (heads(q) + heads(k).repeat_interleave(group, 1)) / 2
    mean_k = mean_q.reshape(T, G, group, K).mean(2)
    unit = lambda t: t * torch.rsqrt(t.pow(2).sum(-1, keepdim=True) + 1e-12) * math.sqrt(K)
    q_hat = unit(conv[:, :H] + mean_q)
    k_hat = unit(conv[:, H:] + mean_k) * w[prefix + "qk_norm.temp"][:, None]
    positions, document = document_layout(starts, T)
    rotary_dim = int(K * c["partial_rotary_factor"])
    q_hat, k_hat = (rope(t, positions, c["rope_theta"], rotary_dim) for t in (q_hat, k_hat))
    v = torch.cat(
        [h @ w[p + "v_proj_current.weight"].T, previous(h, starts) @ w[p + "v_proj_delayed.weight"].T], -1
    )
    k_hat, v = k_hat.repeat_interleave(group, 1), heads(v).repeat_interleave(group, 1)
    scores = torch.einsum("thk,shk->hts", q_hat, k_hat) / math.sqrt(K)
    t = torch.arange(T)
    visible = (t[:, None] >= t[None]) & (document[:, None] == document[None])
    mixed = torch.einsum("hts,shk->thk", scores.masked_fill(~visible, -math.inf).softmax(-1), v)
    return mixed.reshape(T, H * K) @ w[prefix + "o_proj.weight"].T


def moe(h, carried, w, prefix, c):
    """Router and experts: output [T, D], router state for the next layer, chosen experts, probabilities."""
    g = prefix + "gate."
    state = h @ w[g + "down_proj.weight"].T + w[g + "down_proj.bias"]
    if carried is not None:
        state = state + w[g + "router_states_scale"] * carried
    m = g + "router_mlp."
    s = rms_norm(state, w[m + "norm.weight"], c["rms_norm_eps"])
    for fc in ("fc1", "fc2"):
        s = F.gelu(s @ w[m + fc + ".weight"].T + w[m + fc + ".bias"])
    probs = (s @ w[m + "out_proj.weight"].T).softmax(-1)
    biased = probs.detach() + w[g + "balancing_biases"].double()
    chosen = biased.argmax(-1)
    assert (chosen < c["num_experts"]).all(), "the pinned skip class was chosen"
    rows = []
    for t, e in enumerate(chosen.tolist()):
        gate, up = (w[prefix + "experts.gate_up_proj"][e] @ h[t]).chunk(2)
        rows.append(probs[t, e] * (w[prefix + "experts.down_proj"][e] @ (F.silu(gate) * up)))
    return torch.stack(rows), state, chosen, biased


def forward(ids, starts, w, c):
    """Logits [T, V], the stream after each layer, and per layer (chosen experts, biased probabilities)."""
    stream = (w["model.embed_tokens.weight"][ids] + w["model.input_hidden_states_bias"]) * w[
        "model.input_hidden_states_scale"
    ]
    carried, streams, routes = None, [], []

    def merge(y, x, p):
        return (y + w[p + "hidden_states_bias"]) * w[p + "hidden_states_scale"] + (
            x + w[p + "residual_bias"]
        ) * w[p + "residual_scale"]

    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = rms_norm(stream, w[p + "input_layernorm.weight"], c["rms_norm_eps"])
        stream = merge(cca(h, w, p + "self_attn.", c, starts), stream, p + "post_attention_residual_scale.")
        h = rms_norm(stream, w[p + "post_attention_layernorm.weight"], c["rms_norm_eps"])
        y, carried, chosen, biased = moe(h, carried, w, p + "mlp.", c)
        stream = merge(y, stream, p + "post_mlp_residual_scale.")
        streams.append(stream)
        routes.append((chosen, biased))
    return (
        rms_norm(stream, w["model.norm.weight"], c["rms_norm_eps"]) @ w["model.embed_tokens.weight"].T,
        streams,
        routes,
    )
