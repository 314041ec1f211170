// See huggingface.h: the tables of external tensors.
#include "models/huggingface.h"

#include <algorithm>

namespace ingot {
namespace {

/// Collects external tensors for one decoder.
class Names {
 public:
  explicit Names(const Decoder& d) : decoder_(d) {}

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
    INGOT_CHECK(p >= 0, "no parameter '{}'", ours);
    return p;
  }
  void add(const std::string& external, Shape shape, int p, int64_t offset, std::vector<int64_t> stride) {
    tensors_.push_back({external, shape, p, -1, offset, std::move(stride)});
  }
  const Decoder& decoder_;
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

/// deepseek_v3, dots1, llama, mistral, mixtral, qwen3, qwen3_moe, smollm3: one naming but for the experts.
void llama_names(const Decoder& d, Names& n, const std::string& family) {
  const ModelConfig& m = d.config();
  n.whole("model.embed_tokens.weight", "embed.weight");
  for (int64_t l = 0; l < m.layers; ++l) {
    const std::string e = fmt::format("model.layers.{}.", l), o = layer_prefix(l);
    n.whole(e + "input_layernorm.weight", o + "attention_norm.weight");
    if (m.is_mla())
      latent_attention_names(m, n, e, o);
    else
      grouped_attention_names(m, n, e, o);
    n.whole(e + "post_attention_layernorm.weight", o + "mlp_norm.weight");
    if (!m.is_moe(l)) {
      n.rows(e + "mlp.gate_proj.weight", o + "mlp.gate_up.weight", 0, m.mlp_hidden());
      n.rows(e + "mlp.up_proj.weight", o + "mlp.gate_up.weight", m.mlp_hidden(), m.mlp_hidden());
      n.whole(e + "mlp.down_proj.weight", o + "mlp.down.weight");
      continue;
    }
    moe_names(m, n, e, o, l, family);
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

}  // namespace

const std::vector<std::string>& huggingface_families() {
  static const std::vector<std::string> names = {"deepseek_v3", "dots1", "gpt2",      "llama",   "mistral",
                                                 "mixtral",     "qwen3", "qwen3_moe", "smollm3", "zaya"};
  return names;
}

std::string huggingface_families_hint() {
  std::string text;
  for (const std::string& name : huggingface_families()) text += (text.empty() ? "families: " : ", ") + name;
  return text;
}

HuggingfaceLayout huggingface_layout(const ModelConfig& m) {
  if (!m.norm_weight || m.embedding_norm || m.input_mix || m.unet_skips || m.value_embeddings > 0 ||
      m.head_multiple > 1 || m.attention_pattern.find('N') != std::string::npos)
    throw Error(
        "no Hugging Face family describes this model: norms without weights, a norm of the embedding, mixed "
        "inputs, "
        "skips between blocks, value embeddings, a padded head and layers without attention have no "
        "counterpart there",
        huggingface_families_hint());
  const bool zaya = m.attention == AttentionKind::cca && m.residual == ResidualKind::scaled &&
                    m.moe.router == RouterKind::zaya && m.moe.experts > 0 && m.moe.first_dense == 0 &&
                    m.moe.skip_class && m.tied && m.moe.shared_hidden == 0 && m.moe.latent == 0;
  const bool gpt2 = m.position == PositionKind::learned && m.norm == NormKind::layer && m.norm_bias &&
                    m.tied && m.attention_bias && m.mlp_bias && m.moe.experts == 0 && !m.qk_norm;
  const bool llama = m.attention != AttentionKind::cca && m.position == PositionKind::rope &&
                     m.norm == NormKind::rms && m.residual == ResidualKind::plain &&
                     m.mlp == ActivationKind::swiglu && !m.mlp_bias && m.rotary_fraction == 1.0;
  const bool linear = m.moe.router == RouterKind::linear && m.moe.latent == 0;
  const bool sigmoid =
      llama && linear && m.moe.experts > 0 && m.moe.score == RouteScore::sigmoid && m.moe.shared_hidden > 0;
  if (zaya) return {.family = "zaya"};
  if (gpt2) return {.family = "gpt2"};
  if (llama && m.is_mla() && (sigmoid || m.moe.experts == 0)) return {.family = "deepseek_v3"};
  if (sigmoid && m.qk_norm && !m.is_mla()) return {.family = "dots1"};
  if (!llama || m.is_mla() ||
      (m.moe.experts > 0 && (!linear || m.moe.shared_hidden > 0 || m.moe.first_dense > 0)))
    throw Error("no Hugging Face family describes this model",
                huggingface_families_hint() + "; options such as latent experts have no counterpart there");
  if (m.moe.experts > 0) return {.family = m.qk_norm ? "qwen3_moe" : "mixtral"};
  return {.family = m.qk_norm                 ? "qwen3"
                    : !m.rope_pattern.empty() ? "smollm3"
                    : m.window > 0            ? "mistral"
                                              : "llama"};
}

std::vector<ExternalTensor> huggingface_tensors(const Decoder& d, const HuggingfaceLayout& layout) {
  Names n(d);
  if (layout.family == "gpt2")
    gpt2_names(d, n, layout.gpt2_prefix ? "transformer." : "");
  else if (layout.family == "zaya" && layout.zaya_sublayers)
    zaya_names_in_sublayers(d, n);
  else if (layout.family == "zaya")
    zaya_names(d, n);
  else
    llama_names(d, n, layout.family);
  return n.take();
}

std::vector<ExternalTensor> huggingface_tensors(const Decoder& d) {
  return huggingface_tensors(d, huggingface_layout(d.config()));
}

}  // namespace ingot
