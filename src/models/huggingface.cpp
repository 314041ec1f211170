// See huggingface.h: the tables of external tensors.
#include "models/huggingface.h"

#include <algorithm>

namespace ingot {
namespace {

/// Collects external tensors for one decoder.
class Names {
 public:
  Names(const Decoder& d, const std::string& family) : decoder_(d), family_(family) {}

  /// A whole parameter as it is (shape may differ by unit dimensions).
  void whole(const std::string& external, const std::string& ours, Shape shape = {}) {
    const int p = index(ours);
    const Shape& own = decoder_.table()[p].shape;
    add(external, shape.rank() > 0 ? shape : own, p, 0, row_major(shape.rank() > 0 ? shape : own));
  }
  /// Rows [begin, begin + rows) of a matrix or vector.
  void rows(const std::string& external, const std::string& ours, int64_t begin, int64_t count) {
    const int p = index(ours);
    const Shape& own = decoder_.table()[p].shape;
    const int64_t width = own.rank() > 1 ? own[1] : 1;
    Shape shape{count};
    if (own.rank() > 1) shape.push_back(width);
    add(external, shape, p, begin * width, row_major(shape));
  }
  /// The transpose of a matrix ([in, out] of gpt2's Conv1D).
  void transposed(const std::string& external, const std::string& ours) {
    const int p = index(ours);
    const Shape& own = decoder_.table()[p].shape;
    add(external, {own[1], own[0]}, p, 0, {1, own[1]});
  }
  /// Rows of one expert.
  void expert_rows(const std::string& external, const std::string& ours, int64_t expert, int64_t begin,
                   int64_t count) {
    const int p = index(ours);
    const Shape& own = decoder_.table()[p].shape;
    add(external, {count, own[2]}, p, (expert * own[1] + begin) * own[2], {own[2], 1});
  }
  /// zaya's grouped convolution: external [C, K, 2] (out channel, in channel, tap); ours [heads, K, 2 K] with
  /// the older tap's K columns first.
  void grouped_conv(const std::string& external, const std::string& ours) {
    const int p = index(ours);
    const Shape& own = decoder_.table()[p].shape;
    const int64_t k = own[1];
    add(external, {own[0] * k, k, 2}, p, 0, {2 * k, 1, k});
  }
  void balancing_bias(const std::string& external, int64_t layer, int64_t classes) {
    tensors_.push_back({external, {classes}, -1, layer, 0, {1}});
  }
  std::vector<ExternalTensor> take() { return std::move(tensors_); }

 private:
  static std::vector<int64_t> row_major(const Shape& s) {
    std::vector<int64_t> strides(static_cast<size_t>(s.rank()), 1);
    for (int d = s.rank() - 2; d >= 0; --d)
      strides[static_cast<size_t>(d)] = strides[static_cast<size_t>(d) + 1] * s[d + 1];
    return strides;
  }
  int index(const std::string& ours) const {
    const int p = decoder_.table().find(ours);
    if (p < 0)
      throw Error(fmt::format("the family {} has a parameter '{}', this model has none", family_, ours),
                  "train with the options of the family to export the model");
    return p;
  }
  void add(const std::string& external, Shape shape, int p, int64_t offset, std::vector<int64_t> stride) {
    tensors_.push_back({external, shape, p, -1, offset, std::move(stride)});
  }
  const Decoder& decoder_;
  const std::string& family_;
  std::vector<ExternalTensor> tensors_;
};

void gpt2_names(const Decoder& d, Names& n, const std::string& prefix) {
  n.whole(prefix + "wte.weight", "embed.weight");
  n.whole(prefix + "wpe.weight", "position_embed.weight");
  for (int64_t l = 0; l < d.config().layers; ++l) {
    const std::string e = fmt::format("{}h.{}.", prefix, l), o = layer_prefix(l);
    for (const char* part : {"weight", "bias"}) {
      n.whole(e + "ln_1." + part, o + "attention_norm." + part);
      n.whole(e + "ln_2." + part, o + "mlp_norm." + part);
    }
    for (const auto& [external, ours] : {std::pair<const char*, const char*>{"attn.c_attn", "attention.qkv"},
                                         {"attn.c_proj", "attention.out"},
                                         {"mlp.c_fc", "mlp.up"},
                                         {"mlp.c_proj", "mlp.down"}}) {
      n.transposed(e + external + ".weight", o + ours + ".weight");
      n.whole(e + external + ".bias", o + ours + ".bias");
    }
  }
  n.whole(prefix + "ln_f.weight", "final_norm.weight");
  n.whole(prefix + "ln_f.bias", "final_norm.bias");
}

/// q, k, v and the output of grouped-query attention.
void grouped_attention_names(const ModelConfig& m, Names& n, const std::string& e, const std::string& o) {
  const int64_t q = m.heads * m.key_width(), kv = m.kv_heads * m.key_width();
  for (const char* part : {"weight", "bias"}) {
    if (part[0] == 'b' && !m.attention_bias) continue;
    n.rows(e + "self_attn.q_proj." + part, o + "attention.qkv." + part, 0, q);
    n.rows(e + "self_attn.k_proj." + part, o + "attention.qkv." + part, q, kv);
    n.rows(e + "self_attn.v_proj." + part, o + "attention.qkv." + part, q + kv, kv);
    if (part[0] == 'w' || m.attention_out_bias)
      n.whole(e + "self_attn.o_proj." + part, o + "attention.out." + part);
  }
  if (!m.qk_norm) return;
  n.whole(e + "self_attn.q_norm.weight", o + "attention.q_norm.weight");
  n.whole(e + "self_attn.k_norm.weight", o + "attention.k_norm.weight");
}

void latent_attention_names(const ModelConfig& m, Names& n, const std::string& layer,
                            const std::string& ours) {
  const std::string e = layer + "self_attn.", o = ours + "attention.";
  if (m.mla.q_rank > 0) {
    n.rows(e + "q_a_proj.weight", o + "down.weight", 0, m.mla.q_rank);
    n.whole(e + "q_a_layernorm.weight", o + "q_norm.weight");
  }
  n.whole(e + (m.mla.q_rank > 0 ? "q_b_proj.weight" : "q_proj.weight"), o + "q_up.weight");
  n.rows(e + "kv_a_proj_with_mqa.weight", o + "down.weight", m.mla.q_rank, m.mla.kv_rank + m.mla.rope_width);
  n.whole(e + "kv_a_layernorm.weight", o + "kv_norm.weight");
  n.whole(e + "kv_b_proj.weight", o + "kv_up.weight");
  n.whole(e + "o_proj.weight", o + "out.weight");
}

/// One MoE layer: one naming for qwen3_moe, dots1 and deepseek_v3, of which the last two have selection
/// biases and shared experts; another for mixtral.
void moe_names(const ModelConfig& m, Names& n, const std::string& e, const std::string& o, int64_t layer,
               const std::string& family) {
  const bool mixtral = family == "mixtral";
  const std::string moe = e + (mixtral ? "block_sparse_moe." : "mlp.");
  n.whole(moe + "gate.weight", o + "moe.router.weight");
  for (int64_t x = 0; x < m.moe.experts; ++x) {
    const std::string ex = fmt::format("{}experts.{}.", moe, x);
    n.expert_rows(ex + (mixtral ? "w1.weight" : "gate_proj.weight"), o + "moe.experts.gate_up.weight", x, 0,
                  m.moe.hidden);
    n.expert_rows(ex + (mixtral ? "w3.weight" : "up_proj.weight"), o + "moe.experts.gate_up.weight", x,
                  m.moe.hidden, m.moe.hidden);
    n.expert_rows(ex + (mixtral ? "w2.weight" : "down_proj.weight"), o + "moe.experts.down.weight", x, 0,
                  m.width);
  }
  if (family != "dots1" && family != "deepseek_v3") return;
  const int64_t shared = m.moe.shared_hidden;
  n.balancing_bias(moe + "gate.e_score_correction_bias", layer, m.moe.experts);
  n.rows(moe + "shared_experts.gate_proj.weight", o + "moe.shared.gate_up.weight", 0, shared);
  n.rows(moe + "shared_experts.up_proj.weight", o + "moe.shared.gate_up.weight", shared, shared);
  n.whole(moe + "shared_experts.down_proj.weight", o + "moe.shared.down.weight");
}

/// The norms of a layer: of what its sublayers read, of what they add, or of both.
void norm_names(const ModelConfig& m, Names& n, const std::string& e, const std::string& o) {
  const bool before = m.norms_before(), after = m.norms_after();
  if (before) n.whole(e + "input_layernorm.weight", o + "attention_norm.weight");
  if (after) n.whole(e + "post_attention_layernorm.weight", o + "attention_after.weight");
  if (before)
    n.whole(e + (after ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight"),
            o + "mlp_norm.weight");
  if (after) n.whole(e + "post_feedforward_layernorm.weight", o + "mlp_after.weight");
}

void mlp_names(const ModelConfig& m, Names& n, const std::string& e, const std::string& o) {
  for (const std::string part : {"weight", "bias"}) {
    if (part == "bias" && !m.mlp_bias) continue;
    n.rows(e + "mlp.gate_proj." + part, o + "mlp.gate_up." + part, 0, m.mlp_hidden());
    n.rows(e + "mlp.up_proj." + part, o + "mlp.gate_up." + part, m.mlp_hidden(), m.mlp_hidden());
    n.whole(e + "mlp.down_proj." + part, o + "mlp.down." + part);
  }
}

/// phi3: q, k, v are one tensor, as are gate and up.
void phi3_layer_names(Names& n, const std::string& e, const std::string& o) {
  n.whole(e + "self_attn.qkv_proj.weight", o + "attention.qkv.weight");
  n.whole(e + "self_attn.o_proj.weight", o + "attention.out.weight");
  n.whole(e + "mlp.gate_up_proj.weight", o + "mlp.gate_up.weight");
  n.whole(e + "mlp.down_proj.weight", o + "mlp.down.weight");
}

/// All families but gpt2 and zaya: one naming but for the experts and phi3's packed matrices.
void llama_names(const Decoder& d, Names& n, const std::string& family) {
  const ModelConfig& m = d.config();
  n.whole("model.embed_tokens.weight", "embed.weight");
  for (int64_t l = 0; l < m.layers; ++l) {
    const std::string e = fmt::format("model.layers.{}.", l), o = layer_prefix(l);
    norm_names(m, n, e, o);
    if (family == "phi3") {
      phi3_layer_names(n, e, o);
      continue;
    }
    if (m.is_mla())
      latent_attention_names(m, n, e, o);
    else
      grouped_attention_names(m, n, e, o);
    if (m.is_moe(l))
      moe_names(m, n, e, o, l, family);
    else
      mlp_names(m, n, e, o);
  }
  n.whole("model.norm.weight", "final_norm.weight");
  if (!m.tied) n.whole("lm_head.weight", "lm_head.weight");
}

void zaya_layer_names(const ModelConfig& m, Names& n, int64_t l) {
  const int64_t q = m.heads * m.key_width(), kv = m.kv_heads * m.key_width();
  const std::string e = fmt::format("model.layers.{}.", l), o = layer_prefix(l);
  const std::string ep = e + "self_attn.qkv_proj.", oa = o + "attention.", qkv = oa + "qkv.weight";
  n.whole(e + "input_layernorm.weight", o + "attention_norm.weight");
  n.rows(ep + "q_proj.weight", qkv, 0, q);
  n.rows(ep + "k_proj.weight", qkv, q, kv);
  n.rows(ep + "v_proj_current.weight", qkv, q + kv, kv / 2);
  n.rows(ep + "v_proj_delayed.weight", qkv, q + kv + kv / 2, kv / 2);
  n.whole(ep + "conv_qk_depthwise.weight", oa + "conv_depthwise.weight", {q + kv, 1, 2});
  n.whole(ep + "conv_qk_depthwise.bias", oa + "conv_depthwise.bias");
  n.grouped_conv(ep + "conv_qk_grouped.weight", oa + "conv_grouped.weight");
  n.whole(ep + "conv_qk_grouped.bias", oa + "conv_grouped.bias");
  n.whole(e + "self_attn.qk_norm.temp", oa + "temperature");
  n.whole(e + "self_attn.o_proj.weight", oa + "out.weight");
  n.whole(e + "post_attention_layernorm.weight", o + "mlp_norm.weight");
  for (const auto& [external, ours] :
       {std::pair<const char*, const char*>{"post_attention", "attention_merge"},
        {"post_mlp", "mlp_merge"}}) {
    n.whole(e + external + "_residual_scale.hidden_states_scale", o + ours + ".output_scale");
    n.whole(e + external + "_residual_scale.hidden_states_bias", o + ours + ".output_scale_bias");
    n.whole(e + external + "_residual_scale.residual_scale", o + ours + ".stream_scale");
    n.whole(e + external + "_residual_scale.residual_bias", o + ours + ".stream_scale_bias");
  }
  const std::string g = e + "mlp.gate.", r = o + "moe.router.";
  n.whole(g + "down_proj.weight", r + "down.weight");
  n.whole(g + "down_proj.bias", r + "down.bias");
  if (l > 0) n.whole(g + "router_states_scale", r + "eda_scale");
  n.whole(g + "router_mlp.norm.weight", r + "norm.weight");
  for (const char* fc : {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"})
    n.whole(g + "router_mlp." + fc, r + fc);
  n.whole(g + "router_mlp.out_proj.weight", r + "out.weight");
  n.balancing_bias(g + "balancing_biases", l, m.moe.experts + 1);
  n.whole(e + "mlp.experts.gate_up_proj", o + "moe.experts.gate_up.weight");
  n.whole(e + "mlp.experts.down_proj", o + "moe.experts.down.weight");
}

void zaya_names(const Decoder& d, Names& n) {
  n.whole("model.embed_tokens.weight", "embed.weight");
  n.whole("model.input_hidden_states_scale", "input_scale.scale");
  n.whole("model.input_hidden_states_bias", "input_scale.bias");
  for (int64_t l = 0; l < d.config().layers; ++l) zaya_layer_names(d.config(), n, l);
  n.whole("model.norm.weight", "final_norm.weight");
}

/// A merge's four vectors, or the two of the input.
void zaya_scale_names(Names& n, const std::string& external, const std::string& ours, bool input) {
  n.whole(external + "hidden_states_scale", ours + (input ? ".scale" : ".output_scale"));
  n.whole(external + "hidden_states_bias", ours + (input ? ".bias" : ".output_scale_bias"));
  if (input) return;
  n.whole(external + "residual_scale", ours + ".stream_scale");
  n.whole(external + "residual_bias", ours + ".stream_scale_bias");
}

/// The older layout: sublayer 2 i is attention, 2 i + 1 the experts; a merge belongs to the sublayer after
/// it.
void zaya_sublayer_names(const ModelConfig& m, Names& n, int64_t l) {
  const int64_t q = m.heads * m.key_width(), kv = m.kv_heads * m.key_width();
  const std::string a = fmt::format("model.layers.{}.", 2 * l),
                    e = fmt::format("model.layers.{}.", 2 * l + 1);
  const std::string o = layer_prefix(l), oa = o + "attention.", qkv = oa + "qkv.weight";
  const std::string ap = a + "self_attn.qkv.", router = e + "zaya_block.router.", r = o + "moe.router.";
  zaya_scale_names(n, a + "res_scale.", l == 0 ? "input_scale" : layer_prefix(l - 1) + "mlp_merge", l == 0);
  n.whole(a + "input_norm.weight", o + "attention_norm.weight");
  n.rows(ap + "linear_q.weight", qkv, 0, q);
  n.rows(ap + "linear_k.weight", qkv, q, kv);
  n.rows(ap + "val_proj1.weight", qkv, q + kv, kv / 2);
  n.rows(ap + "val_proj2.weight", qkv, q + kv + kv / 2, kv / 2);
  n.whole(ap + "conv_qk.0.weight", oa + "conv_depthwise.weight", {q + kv, 1, 2});
  n.whole(ap + "conv_qk.0.bias", oa + "conv_depthwise.bias");
  n.grouped_conv(ap + "conv_qk.1.weight", oa + "conv_grouped.weight");
  n.whole(ap + "conv_qk.1.bias", oa + "conv_grouped.bias");
  n.whole(ap + "temp", oa + "temperature");
  n.whole(a + "self_attn.o_proj.weight", oa + "out.weight");
  zaya_scale_names(n, e + "res_scale.", o + "attention_merge", false);
  n.whole(e + "input_norm.weight", o + "mlp_norm.weight");
  n.whole(router + "down_proj.weight", r + "down.weight");
  n.whole(router + "down_proj.bias", r + "down.bias");
  if (l > 0) n.whole(router + "router_states_scale", r + "eda_scale");
  n.whole(router + "rmsnorm_eda.weight", r + "norm.weight");
  for (const auto& [place, fc] : {std::pair<const char*, const char*>{"0.", "fc1."}, {"2.", "fc2."}})
    for (const char* part : {"weight", "bias"}) n.whole(router + "router_mlp." + place + part, r + fc + part);
  n.whole(router + "router_mlp.4.weight", r + "out.weight");
  n.balancing_bias(router + "balancing_biases", l, m.moe.experts + 1);
  for (int64_t x = 0; x < m.moe.experts; ++x) {
    const std::string expert = fmt::format("{}zaya_block.experts.local_experts.{}.", e, x);
    n.expert_rows(expert + "linear_fc1.weight", o + "moe.experts.gate_up.weight", x, 0, 2 * m.moe.hidden);
    n.expert_rows(expert + "linear_fc2.weight", o + "moe.experts.down.weight", x, 0, m.width);
  }
}

void zaya_names_in_sublayers(const Decoder& d, Names& n) {
  const int64_t layers = d.config().layers;
  n.whole("model.embed_tokens.weight", "embed.weight");
  for (int64_t l = 0; l < layers; ++l) zaya_sublayer_names(d.config(), n, l);
  zaya_scale_names(n, "model.res_scale.", layer_prefix(layers - 1) + "mlp_merge", false);
  n.whole("model.final_norm.weight", "final_norm.weight");
}

/// The family whose kind of attention, experts and norms a model has, whatever its other options.
std::string nearest_family(const ModelConfig& m) {
  if (m.attention == AttentionKind::cca) return "zaya";
  if (m.position == PositionKind::learned) return "gpt2";
  if (m.is_mla()) return "deepseek_v3";
  if (m.moe.experts > 0) {
    if (m.moe.score == RouteScore::sigmoid) return "dots1";
    return m.qk_norm ? "qwen3_moe" : "mixtral";
  }
  if (m.norm_position == NormPosition::after) return m.window > 0 ? "olmo3" : "olmo2";
  if (m.norm_position == NormPosition::both) return m.qk_norm ? "gemma3_text" : "gemma2";
  if (m.norm_offset != 0) return "gemma";
  if (m.sublayer_scale != 1 || m.embedding_scale != 1 || m.logit_divisor != 1) return "granite";
  if (m.qk_norm) return "qwen3";
  if (m.attention_bias && !m.attention_out_bias) return "qwen2";
  if (m.rotary_fraction != 1) return "phi3";
  if (!m.rope_pattern.empty()) return "smollm3";
  if (m.attention_scale != 0) return "granite";
  return m.window > 0 ? "mistral" : "llama";
}

/// The options of a model that change which parameters there are, or their shapes, in another way than in a
/// family. Options beyond these are compared where config.json is written.
class Misfits {
 public:
  Misfits(const ModelConfig& m, const std::string& family) {
    const bool zaya = family == "zaya", gpt2 = family == "gpt2", llama = !zaya && !gpt2;
    const bool gemma = family.starts_with("gemma"), olmo = family.starts_with("olmo");
    const bool sigmoid = family == "dots1" || (family == "deepseek_v3" && m.moe.experts > 0);
    want("norm_weight = false", m.norm_weight);
    want("a norm of the embedding", !m.embedding_norm);
    want("mixed inputs (input_mix)", !m.input_mix);
    want("skips between blocks (unet_skips)", !m.unet_skips);
    want("value embeddings", m.value_embeddings == 0);
    want("a padded head (head_multiple)", m.head_multiple == 1);
    want("layers without attention (attention_pattern)", m.attention_pattern.find('N') == std::string::npos);
    want("attention that was registered (custom_attention)", m.custom_attention.empty());
    want(fmt::format("norm = {}", name_of(m.norm)), m.norm == (gpt2 ? NormKind::layer : NormKind::rms));
    want(fmt::format("norm_bias = {}", m.norm_bias), m.norm_bias == gpt2);
    want(fmt::format("position = {}", name_of(m.position)), gpt2 || m.position == PositionKind::rope);
    want(fmt::format("residual = {}", name_of(m.residual)),
         m.residual == (zaya ? ResidualKind::scaled : ResidualKind::plain));
    want(fmt::format("mlp = {}", name_of(m.mlp)), m.mlp == (gpt2    ? ActivationKind::gelu_tanh
                                                            : gemma ? ActivationKind::geglu
                                                                    : ActivationKind::swiglu));
    want(fmt::format("mlp_bias = {}", m.mlp_bias),
         m.mlp_bias == gpt2 || family == "llama" || family == "smollm3" || family == "granite");
    want(fmt::format("attention_bias = {}", m.attention_bias),
         gpt2 || family == "qwen2" ? m.attention_bias
                                   : !m.attention_bias || (!zaya && family != "mistral" &&
                                                           family != "mixtral" && family != "phi3"));
    want(fmt::format("attention_out_bias = {}", m.attention_out_bias),
         !m.attention_bias || m.attention_out_bias == (family != "qwen2"));
    const NormPosition position = olmo                                            ? NormPosition::after
                                  : family == "gemma2" || family == "gemma3_text" ? NormPosition::both
                                                                                  : NormPosition::before;
    want(fmt::format("norm_position = {}", name_of(m.norm_position)), m.norm_position == position);
    want("qk_norm = true", !m.qk_norm || llama);
    want("qk_norm = false", m.qk_norm || (family != "dots1" && family != "gemma3_text" && !olmo &&
                                          !family.starts_with("qwen3")));
    want(fmt::format("qk_norm_joint = {}", m.qk_norm_joint), !m.qk_norm || m.qk_norm_joint == olmo);
    want(fmt::format("rotary_fraction = {}", m.rotary_fraction),
         !llama || family == "phi3" || m.rotary_fraction == 1);
    want("a head apart from the embedding (tied = false)", m.tied || llama);
    experts(m, family, sigmoid);
  }
  std::vector<std::string> take() { return std::move(options_); }

 private:
  void want(const std::string& option, bool fits) {
    if (!fits) options_.push_back(option);
  }
  void experts(const ModelConfig& m, const std::string& family, bool sigmoid) {
    const bool zaya = family == "zaya";
    want("experts", m.moe.experts == 0 || family != "gpt2");
    want("layers without experts", m.moe.experts > 0 || !zaya);
    if (m.moe.experts == 0) return;
    want("latent experts (moe.latent)", m.moe.latent == 0);
    want(fmt::format("moe.router = {}", name_of(m.moe.router)), (m.moe.router == RouterKind::zaya) == zaya);
    want(fmt::format("moe.skip_class = {}", m.moe.skip_class), m.moe.skip_class == zaya);
    want(fmt::format("moe.score = {}", name_of(m.moe.score)),
         (m.moe.score == RouteScore::sigmoid) == sigmoid);
    want(fmt::format("moe.shared_hidden = {}", m.moe.shared_hidden),
         sigmoid ? m.moe.shared_hidden > 0 && m.moe.shared_hidden % m.moe.hidden == 0
                 : m.moe.shared_hidden == 0);
    want(fmt::format("dense layers (moe.first_dense = {})", m.moe.first_dense),
         sigmoid || m.moe.first_dense == 0);
  }
  std::vector<std::string> options_;
};

/// Every element of every parameter lies in exactly as many external tensors as it should: one, or none for
/// adapters, which are merged, and for multi-token prediction, which acts in training only.
void require_every_parameter(const Decoder& d, const std::string& family,
                             const std::vector<ExternalTensor>& tensors) {
  const ParameterTable& table = d.table();
  std::vector<int64_t> covered(static_cast<size_t>(table.size()));
  for (const ExternalTensor& e : tensors) {
    if (e.parameter < 0) continue;
    int64_t last = e.offset;
    for (int i = 0; i < e.shape.rank(); ++i) last += (e.shape[i] - 1) * e.stride[static_cast<size_t>(i)];
    INGOT_CHECK(e.shape.numel() == 0 || last < table[e.parameter].shape.numel(), "'{}' ends beyond '{}'",
                e.name, table[e.parameter].name);
    covered[static_cast<size_t>(e.parameter)] += e.shape.numel();
  }
  const auto acts_in_training_only = [&](const std::string& name) {
    for (int64_t k = 0; k < d.config().mtp.modules(); ++k)
      if (name.starts_with(layer_prefix(d.config().layers + k))) return true;
    return is_adapter(name);
  };
  std::string names;
  for (int p = 0; p < table.size(); ++p) {
    if (acts_in_training_only(table[p].name)) continue;
    if (covered[static_cast<size_t>(p)] != table[p].shape.numel())
      names += (names.empty() ? "'" : ", '") + table[p].name + "'";
  }
  if (!names.empty())
    throw Error(
        fmt::format("the family {} has no tensors for these parameters of the model: {}", family, names),
        "train without the option that adds them to export the model");
}

}  // namespace

const std::vector<std::string>& huggingface_families() {
  static const std::vector<std::string> names = {
      "deepseek_v3", "dots1", "gemma", "gemma2", "gemma3_text", "gpt2",  "granite",   "llama",   "mistral",
      "mixtral",     "olmo2", "olmo3", "phi3",   "qwen2",       "qwen3", "qwen3_moe", "smollm3", "zaya"};
  return names;
}

std::string huggingface_families_hint() {
  std::string text;
  for (const std::string& name : huggingface_families()) text += (text.empty() ? "families: " : ", ") + name;
  return text;
}

HuggingfaceLayout huggingface_layout(const ModelConfig& m) {
  const std::string family = nearest_family(m);
  std::string options;
  for (const std::string& option : Misfits(m, family).take())
    options += (options.empty() ? "" : ", ") + option;
  if (options.empty()) return {.family = family};
  throw Error(fmt::format("no Hugging Face family describes this model: the nearest, {}, does not have {}",
                          family, options),
              huggingface_families_hint());
}

std::vector<ExternalTensor> huggingface_tensors(const Decoder& d, const HuggingfaceLayout& layout) {
  Names n(d, layout.family);
  if (layout.family == "gpt2")
    gpt2_names(d, n, layout.gpt2_prefix ? "transformer." : "");
  else if (layout.family == "zaya" && layout.zaya_sublayers)
    zaya_names_in_sublayers(d, n);
  else if (layout.family == "zaya")
    zaya_names(d, n);
  else
    llama_names(d, n, layout.family);
  std::vector<ExternalTensor> tensors = n.take();
  require_every_parameter(d, layout.family, tensors);
  return tensors;
}

std::vector<ExternalTensor> huggingface_tensors(const Decoder& d) {
  return huggingface_tensors(d, huggingface_layout(d.config()));
}

}  // namespace ingot
