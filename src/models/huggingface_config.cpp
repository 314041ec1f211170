// See huggingface.h: reading config.json.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "models/huggingface.h"
#include "models/presets.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int64_t kMaxLayers = 4096, kMaxHeads = 1 << 16, kMaxExperts = 1 << 12;

/// Typed access to a config object with errors that name file and field.
class Fields {
 public:
  Fields(const Json& json, const std::string& path) : json_(json), path_(path) {}
  /// An integer of at least 0; sizes beyond `most` describe no model that exists, and would overflow counts.
  int64_t integer(const char* name, int64_t most = int64_t{1} << 24) const {
    const Json& v = need(name);
    const bool fits = v.is_number_unsigned() && v.get<uint64_t>() <= static_cast<uint64_t>(most);
    if (!fits) fail("'{}': field '{}' is {}, expected an integer from 0 to {}", path_, name, shown(v), most);
    return v.get<int64_t>();
  }
  int64_t integer_or(const char* name, int64_t otherwise, int64_t most = int64_t{1} << 24) const {
    return has(name) ? integer(name, most) : otherwise;
  }
  double number(const char* name, double otherwise) const {
    if (!has(name)) return otherwise;
    const Json& v = need(name);
    if (!v.is_number()) fail("'{}': field '{}' is {}, expected a number", path_, name, shown(v));
    return v.get<double>();
  }
  bool flag(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    const Json& v = need(name);
    if (!v.is_boolean()) fail("'{}': field '{}' is {}, expected true or false", path_, name, shown(v));
    return v.get<bool>();
  }
  std::string text(const char* name, const std::string& otherwise) const {
    if (!has(name)) return otherwise;
    const Json& v = need(name);
    if (!v.is_string()) fail("'{}': field '{}' is {}, expected a string", path_, name, shown(v));
    return v.get<std::string>();
  }
  bool has(const char* name) const {
    const auto it = json_.find(name);
    return it != json_.end() && !it->is_null();
  }
  bool names(const char* name) const { return json_.contains(name); }
  void require(bool ok, const char* name, const char* why) const {
    if (!ok)
      fail("'{}': field '{}' is {}: {}", path_, name, has(name) ? shown(json_.at(name)) : "absent", why);
  }
  const Json& need(const char* name) const {
    if (!has(name)) fail("'{}': field '{}' is missing", path_, name);
    return json_.at(name);
  }
  /// The same access to a table inside; its errors name the inner field.
  Fields table(const char* name) const {
    require(need(name).is_object(), name, "expected a table");
    return Fields(json_.at(name), path_);
  }

 private:
  static std::string shown(const Json& v) {
    std::string text = v.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 120) text = text.substr(0, 117) + "...";
    return text;
  }
  const Json& json_;
  const std::string& path_;
};

/// The scaling of the rotation: names of both dialects.
void read_rope_scaling(const Fields& rope, ModelConfig& m) {
  const std::string kind = rope.text("rope_type", rope.text("type", "default"));
  if (kind == "default") return;
  RopeScalingConfig& s = m.rope_scaling;
  if (kind == "linear")
    s.kind = RopeScalingKind::linear;
  else if (kind == "llama3")
    s.kind = RopeScalingKind::llama3;
  else if (kind == "yarn")
    s.kind = RopeScalingKind::yarn;
  else
    rope.require(false, "rope_type", "rotations are default, linear, llama3 or yarn");
  s.original_context = rope.integer_or("original_max_position_embeddings", 0);
  s.factor = rope.number(
      "factor",
      s.original_context > 0 ? static_cast<double>(m.context) / static_cast<double>(s.original_context) : 1);
  s.low_freq_factor = rope.number("low_freq_factor", 1);
  s.high_freq_factor = rope.number("high_freq_factor", 4);
  s.beta_slow = rope.number("beta_slow", 1);
  s.beta_fast = rope.number("beta_fast", 32);
  s.attention_factor = rope.number("attention_factor", 0);
  s.mscale = rope.number("mscale", 0);
  s.mscale_all_dim = rope.number("mscale_all_dim", 0);
  rope.require(rope.flag("truncate", true), "truncate", "yarn's ramp is rounded to whole pairs here");
}

/// Both dialects: rope_parameters (newer, possibly per layer type), or rope_theta and rope_scaling beside it
/// (older).
void read_rope(const Fields& f, ModelConfig& m, double theta = 10000) {
  m.rope_theta = f.number("rope_theta", theta);
  m.rotary_fraction = f.number("partial_rotary_factor", 1.0);
  m.rope_scaling = {};
  if (f.has("rope_scaling")) read_rope_scaling(f.table("rope_scaling"), m);
  if (!f.has("rope_parameters")) return;
  const Fields outer = f.table("rope_parameters");
  const Fields rope = outer.has("hybrid") ? outer.table("hybrid") : outer;
  m.rope_theta = rope.number("rope_theta", m.rope_theta);
  m.rotary_fraction = rope.number("partial_rotary_factor", m.rotary_fraction);
  read_rope_scaling(rope, m);
}

/// The pattern of a list with one entry per layer; empty where all layers have the letter `all`.
std::string pattern_of(const Fields& f, const char* name, const ModelConfig& m, char all,
                       const std::function<char(const Json&)>& letter) {
  const Json& list = f.need(name);
  f.require(list.is_array() && static_cast<int64_t>(list.size()) >= m.layers, name,
            "expected one entry per layer");
  std::string pattern;
  for (size_t l = 0; l < static_cast<size_t>(m.layers); ++l) pattern += letter(list[l]);
  return pattern.find_first_not_of(all) == std::string::npos ? "" : pattern;
}

/// Sliding windows: one width, and the layers that have it (a list, or from some layer on, or all).
void read_window(const Fields& f, ModelConfig& m, bool use, int64_t otherwise) {
  m.window = f.names("sliding_window") ? f.integer_or("sliding_window", 0) : otherwise;
  if (!f.flag("use_sliding_window", use)) m.window = 0;
  if (m.window == 0) return;
  if (f.has("layer_types")) {
    m.window_pattern = pattern_of(f, "layer_types", m, 'S', [&](const Json& type) {
      f.require(type == "sliding_attention" || type == "full_attention", "layer_types",
                "expected sliding or full attention");
      return type == "sliding_attention" ? 'S' : 'F';
    });
  } else if (f.has("max_window_layers")) {
    const auto full = static_cast<size_t>(std::min(f.integer("max_window_layers"), m.layers));
    m.window_pattern = std::string(full, 'F') + std::string(static_cast<size_t>(m.layers) - full, 'S');
  }
  if (m.window_pattern.find('S') != std::string::npos || m.window_pattern.empty()) return;
  m.window = 0;
  m.window_pattern.clear();
}

ModelConfig common(const Fields& f) {
  ModelConfig m;
  m.vocab = f.integer("vocab_size", int64_t{1} << 28);
  m.width = f.integer("hidden_size");
  m.layers = f.integer("num_hidden_layers", kMaxLayers);
  m.heads = f.integer("num_attention_heads", kMaxHeads);
  m.kv_heads = f.integer_or("num_key_value_heads", m.heads, kMaxHeads);
  m.head_width = f.integer_or("head_dim", 0, int64_t{1} << 16);
  m.context = f.integer_or("max_position_embeddings", 2048, int64_t{1} << 40);
  m.norm_eps = f.number("rms_norm_eps", 1e-6);
  m.tied = f.flag("tie_word_embeddings", false);
  m.attention_bias = f.flag("attention_bias", false);
  f.require(f.text("hidden_act", "silu") == "silu", "hidden_act",
            "only silu (SwiGLU) is implemented for this family");
  read_rope(f, m);
  return m;
}

ModelConfig from_gpt2(const Fields& f) {
  ModelConfig m = model_preset("gpt2");
  m.preset.clear();
  m.vocab = f.integer("vocab_size", int64_t{1} << 28);
  m.width = f.integer("n_embd");
  m.layers = f.integer("n_layer", kMaxLayers);
  m.heads = m.kv_heads = f.integer("n_head", kMaxHeads);
  m.context = f.integer_or("n_positions", 1024);
  m.hidden = f.integer_or("n_inner", 0);
  m.norm_eps = f.number("layer_norm_epsilon", 1e-5);
  f.require(f.text("activation_function", "gelu_new") == "gelu_new", "activation_function",
            "expected gelu_new");
  f.require(f.flag("scale_attn_weights", true), "scale_attn_weights", "only true is implemented");
  f.require(!f.flag("scale_attn_by_inverse_layer_idx", false), "scale_attn_by_inverse_layer_idx",
            "not implemented");
  return m;
}

ModelConfig from_qwen3(const Fields& f, bool moe) {
  ModelConfig m = common(f);
  m.qk_norm = true;
  m.hidden = f.integer_or("intermediate_size", 0);
  read_window(f, m, false, 4096);
  if (!moe) return m;
  m.moe.experts = f.integer(f.has("num_local_experts") ? "num_local_experts" : "num_experts", kMaxExperts);
  m.moe.top_k = f.integer("num_experts_per_tok");
  m.moe.hidden = f.integer("moe_intermediate_size");
  m.moe.normalize = f.flag("norm_topk_prob", false);
  m.moe.aux_coefficient = f.number("router_aux_loss_coef", 0);
  f.require(f.integer_or("decoder_sparse_step", 1) == 1, "decoder_sparse_step", "only 1 is implemented");
  f.require(!f.has("mlp_only_layers") || f.need("mlp_only_layers").empty(), "mlp_only_layers",
            "not implemented");
  return m;
}

ModelConfig from_llama(const Fields& f) {
  ModelConfig m = common(f);
  m.hidden = f.integer("intermediate_size");
  f.require(!f.flag("mlp_bias", false), "mlp_bias", "not implemented");
  return m;
}

ModelConfig mistral(const Fields& f) {
  ModelConfig m = from_llama(f);
  read_window(f, m, true, 4096);
  return m;
}

/// SmolLM3: every n-th layer does not rotate.
ModelConfig from_smollm3(const Fields& f) {
  ModelConfig m = from_llama(f);
  m.tied = f.flag("tie_word_embeddings", true);
  read_rope(f, m, 2e6);
  const int64_t interval = f.integer_or("no_rope_layer_interval", 4);
  f.require(interval > 0, "no_rope_layer_interval", "expected a positive number");
  if (f.has("no_rope_layers"))
    m.rope_pattern =
        pattern_of(f, "no_rope_layers", m, 'R', [](const Json& rotates) { return rotates == 1 ? 'R' : 'N'; });
  else if (interval <= m.layers)
    m.rope_pattern = std::string(static_cast<size_t>(interval) - 1, 'R') + "N";
  read_window(f, m, false, 0);
  return m;
}

/// Mixtral: the chosen experts' weights are divided by their sum; `intermediate_size` is an expert's.
ModelConfig from_mixtral(const Fields& f) {
  ModelConfig m = common(f);
  read_window(f, m, true, 0);
  m.moe.experts = f.integer_or("num_local_experts", 8, kMaxExperts);
  m.moe.top_k = f.integer_or("num_experts_per_tok", 2, kMaxExperts);
  m.moe.hidden = f.integer("intermediate_size");
  m.moe.normalize = true;
  m.moe.aux_coefficient = f.number("router_aux_loss_coef", 0);
  return m;
}

/// Sigmoid scores, selection biases, groups and shared experts, as DeepSeek-V3 and dots.llm1 write them.
void read_sigmoid_experts(const Fields& f, ModelConfig& m) {
  m.moe.experts = f.integer("n_routed_experts", kMaxExperts);
  m.moe.top_k = f.integer("num_experts_per_tok", kMaxExperts);
  m.moe.hidden = f.integer("moe_intermediate_size");
  m.moe.shared_hidden = f.integer("n_shared_experts", kMaxExperts) * m.moe.hidden;
  m.moe.score = RouteScore::sigmoid;
  m.moe.groups = f.integer_or("n_group", 1);
  m.moe.groups_kept = f.integer_or("topk_group", 1);
  m.moe.balance = BalanceRule::sign;
  f.require(m.moe.shared_hidden > 0, "n_shared_experts", "expected at least one shared expert");
  f.require(
      m.moe.groups_kept == m.moe.groups || m.moe.top_k == 2 * m.moe.groups_kept, "topk_group",
      "the family rates a group by its two best experts; here that is num_experts_per_tok / topk_group");
}

/// dots.llm1: Qwen3's attention, DeepSeek-V3's experts.
ModelConfig dots1(const Fields& f) {
  ModelConfig m = common(f);
  m.qk_norm = true;
  m.hidden = f.integer("intermediate_size");
  read_window(f, m, true, 4096);
  read_sigmoid_experts(f, m);
  m.moe.first_dense = f.integer_or("first_k_dense_replace", 0);
  m.moe.normalize = f.flag("norm_topk_prob", false);
  m.moe.scale = f.number("routed_scaling_factor", 1.0);
  return m;
}

/// DeepSeek-V3: latent attention; dense layers, then sigmoid experts. With as many dense layers as layers it
/// is dense.
ModelConfig from_deepseek_v3(const Fields& f) {
  ModelConfig m = common(f);
  m.head_width = 0;  // the family's field means the rotated channels
  m.kv_heads = m.heads;
  m.hidden = f.integer("intermediate_size");
  m.attention = AttentionKind::mla;
  m.mla.q_rank = f.names("q_lora_rank") ? f.integer_or("q_lora_rank", 0) : 1536;
  m.mla.kv_rank = f.integer_or("kv_lora_rank", 512);
  m.mla.nope_width = f.integer_or("qk_nope_head_dim", 128);
  m.mla.rope_width = f.integer_or("qk_rope_head_dim", 64);
  m.mla.value_width = f.integer_or("v_head_dim", 128);
  m.interleaved_rope = f.flag("rope_interleave", true);
  f.require(!m.attention_bias, "attention_bias", "not implemented");
  const int64_t dense = f.integer_or("first_k_dense_replace", 3);
  if (dense >= m.layers) return m;
  read_sigmoid_experts(f, m);
  m.moe.first_dense = dense;
  m.moe.normalize = f.flag("norm_topk_prob", true);
  m.moe.scale = f.number("routed_scaling_factor", 2.5);
  return m;
}

/// A number, or a list with one per sublayer of which those that are not 0 agree.
int64_t agreed(const Fields& f, const char* name) {
  const Json& v = f.need(name);
  if (!v.is_array()) return f.integer(name);
  int64_t value = 0;
  for (const Json& item : v) {
    const bool fits = item.is_number_unsigned() && item.get<uint64_t>() < uint64_t{1} << 24;
    f.require(fits, name, "expected integers");
    const auto n = item.get<int64_t>();
    f.require(n == 0 || value == 0 || n == value, name, "sublayers differ");
    if (n != 0) value = n;
  }
  return value;
}

/// Fields of the older layout under the names of the newer one.
void read_zaya_sublayers(const Fields& f, ModelConfig& m, int64_t sublayers) {
  if (f.has("norm_epsilon")) m.norm_eps = f.number("norm_epsilon", m.norm_eps);
  if (f.has("cca_num_q_heads")) m.heads = agreed(f, "cca_num_q_heads");
  if (f.has("num_query_groups")) m.kv_heads = agreed(f, "num_query_groups");
  if (f.has("ffn_hidden_size")) m.moe.hidden = agreed(f, "ffn_hidden_size") / 2;
  if (f.has("zaya_mlp_expansion")) m.moe.router_width = agreed(f, "zaya_mlp_expansion");
  for (const char* name : {"zaya_use_mod", "zaya_use_eda", "scale_residual_merge"})
    f.require(f.flag(name, true), name, "only true is implemented");
  f.require(f.text("activation_func", "swiglu") == "swiglu", "activation_func", "expected swiglu");
  if (sublayers == 0) return;
  f.require(sublayers % 2 == 0 && (m.layers == sublayers || m.layers == sublayers / 2), "num_hidden_layers",
            "the checkpoint's tensors count another number of sublayers");
  m.layers = sublayers / 2;
}

ModelConfig zaya(const Fields& f, int64_t sublayers) {
  ModelConfig m = common(f);
  m.tied = f.flag("tie_word_embeddings", true);
  f.require(m.tied, "tie_word_embeddings", "zaya ties them");
  m.attention = AttentionKind::cca;
  m.residual = ResidualKind::scaled;
  m.moe.experts = f.integer("num_experts", kMaxExperts);
  m.moe.top_k = f.integer_or("num_experts_per_tok", f.integer_or("moe_router_topk", 1));
  m.moe.hidden = f.integer_or("moe_intermediate_size", 0);
  m.moe.router = RouterKind::zaya;
  m.moe.router_width = f.integer_or("router_hidden_size", 256);
  m.moe.skip_class = true;
  m.moe.balance = BalanceRule::adamw;
  read_zaya_sublayers(f, m, sublayers);
  f.require(m.moe.hidden > 0, "moe_intermediate_size", "expected the width of an expert");
  f.require(m.moe.top_k == 1, "num_experts_per_tok", "zaya routes to one expert");
  f.require(f.integer_or("cca_time0", 2) == 2 && f.integer_or("cca_time1", 2) == 2, "cca_time0",
            "convolutions have width 2");
  f.require(!f.flag("clamp_temp", false), "clamp_temp", "not implemented");
  if (f.has("layer_types"))
    for (const Json& type : f.need("layer_types"))
      f.require(type == "hybrid", "layer_types", "sliding windows of zaya are not implemented");
  return m;
}

Json parse(const std::string& text, const std::string& path) {
  if (text.size() > kMaxConfigBytes)
    fail("'{}' has {} bytes, at most {} are a config.json", path, text.size(), kMaxConfigBytes);
  require_shallow_json(text, path);
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail("'{}' is not a JSON object", path);
  return json;
}

ModelConfig read_family(const Fields& f, const std::string& path, int64_t zaya_sublayers) {
  const std::string type = f.text("model_type", "");
  if (type == "gpt2") return from_gpt2(f);
  if (type == "dots1") return dots1(f);
  if (type == "llama") return from_llama(f);
  if (type == "deepseek_v3") return from_deepseek_v3(f);
  if (type == "mistral") return mistral(f);
  if (type == "mixtral") return from_mixtral(f);
  if (type == "smollm3") return from_smollm3(f);
  if (type == "qwen3") return from_qwen3(f, false);
  if (type == "qwen3_moe") return from_qwen3(f, true);
  if (type == "zaya") return zaya(f, zaya_sublayers);
  throw Error(fmt::format("'{}': model_type is '{}'", path, type.substr(0, 120)),
              huggingface_families_hint());
}

}  // namespace

ModelConfig model_from_huggingface(const std::string& config_json, const std::string& path,
                                   int64_t zaya_sublayers) {
  const Json json = parse(config_json, path);
  const ModelConfig m = read_family(Fields(json, path), path, zaya_sublayers);
  try {
    return read_config(to_node(m), ModelConfig());  // for its complaints
  } catch (const Error& e) {
    throw Error(fmt::format("'{}' describes no model: {}", path, e.what()), e.hint());
  }
}

}  // namespace ingot
