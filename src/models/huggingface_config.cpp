// See huggingface.h: reading config.json.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "models/huggingface.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

/// Typed access to a config object with errors that name file and field.
class Fields {
 public:
  Fields(const Json& json, const std::string& path) : json_(json), path_(path) {}
  int64_t integer(const char* name) const { return get<int64_t>(name, "an integer"); }
  int64_t integer(const char* name, int64_t otherwise) const { return has(name) ? integer(name) : otherwise; }
  double number(const char* name, double otherwise) const { return has(name) ? get<double>(name, "a number") : otherwise; }
  bool flag(const char* name, bool otherwise) const { return has(name) ? get<bool>(name, "true or false") : otherwise; }
  std::string text(const char* name, const std::string& otherwise) const {
    return has(name) ? get<std::string>(name, "a string") : otherwise;
  }
  bool has(const char* name) const { return json_.contains(name) && !json_[name].is_null(); }
  void require(bool ok, const char* name, const char* why) const {
    if (!ok) fail("'{}': field '{}' is {}: {}", path_, name, json_.value(name, Json()).dump(), why);
  }
  const Json& json() const { return json_; }

 private:
  template <class T>
  T get(const char* name, const char* expected) const {
    if (!has(name)) fail("'{}': field '{}' is missing", path_, name);
    try {
      return json_.at(name).get<T>();
    } catch (const Json::exception&) {
      fail("'{}': field '{}' is {}, expected {}", path_, name, json_.at(name).dump(), expected);
    }
  }
  const Json& json_;
  const std::string& path_;
};

/// The scaling of the rotation: names of both dialects.
void read_rope_scaling(const Fields& f, const char* name, const Json& rope, ModelConfig& m) {
  const std::string kind = rope.value("rope_type", rope.value("type", "default"));
  if (kind == "default") return;
  RopeScalingConfig& s = m.rope_scaling;
  if (kind == "linear") s.kind = RopeScalingKind::linear;
  else if (kind == "llama3") s.kind = RopeScalingKind::llama3;
  else if (kind == "yarn") s.kind = RopeScalingKind::yarn;
  else f.require(false, name, "rotations are default, linear, llama3 or yarn");
  const auto number = [&](const char* key, double otherwise) {
    const auto it = rope.find(key);
    if (it == rope.end() || it->is_null()) return otherwise;
    f.require(it->is_number(), name, "a setting of the rotation is not a number");
    return it->get<double>();
  };
  s.original_context = static_cast<int64_t>(number("original_max_position_embeddings", 0));
  s.factor = number("factor", s.original_context > 0 ? static_cast<double>(m.context) / static_cast<double>(s.original_context) : 1);
  s.low_freq_factor = number("low_freq_factor", 1);
  s.high_freq_factor = number("high_freq_factor", 4);
  s.beta_slow = number("beta_slow", 1);
  s.beta_fast = number("beta_fast", 32);
  s.attention_factor = number("attention_factor", 0);
  s.mscale = number("mscale", 0);
  s.mscale_all_dim = number("mscale_all_dim", 0);
  const auto truncate = rope.find("truncate");
  f.require(truncate == rope.end() || *truncate == true, name, "yarn's ramp is rounded to whole pairs here");
}

/// Both dialects: rope_parameters (newer, possibly per layer type), or rope_theta and rope_scaling beside it (older).
void read_rope(const Fields& f, ModelConfig& m, double theta = 10000) {
  m.rope_theta = f.number("rope_theta", theta);
  m.rotary_fraction = f.number("partial_rotary_factor", 1.0);
  if (f.has("rope_scaling")) read_rope_scaling(f, "rope_scaling", f.json().at("rope_scaling"), m);
  if (!f.has("rope_parameters")) return;
  Json rope = f.json().at("rope_parameters");
  if (rope.contains("hybrid")) rope = rope["hybrid"];
  f.require(rope.is_object(), "rope_parameters", "expected a table");
  m.rope_theta = rope.value("rope_theta", m.rope_theta);
  m.rotary_fraction = rope.value("partial_rotary_factor", m.rotary_fraction);
  read_rope_scaling(f, "rope_parameters", rope, m);
}

/// The pattern of a list with one entry per layer; empty where all layers have the letter `all`.
std::string pattern_of(const Fields& f, const char* name, const ModelConfig& m, char all,
                       const std::function<char(const Json&)>& letter) {
  const Json& list = f.json().at(name);
  f.require(list.is_array() && static_cast<int64_t>(list.size()) >= m.layers, name, "expected one entry per layer");
  std::string pattern;
  for (size_t l = 0; l < static_cast<size_t>(m.layers); ++l) pattern += letter(list[l]);
  return pattern.find_first_not_of(all) == std::string::npos ? "" : pattern;
}

/// Sliding windows: one width, and the layers that have it (a list, or from some layer on, or all).
void read_window(const Fields& f, ModelConfig& m, bool use, int64_t otherwise) {
  m.window = f.json().contains("sliding_window") ? f.integer("sliding_window", 0) : otherwise;
  if (!f.flag("use_sliding_window", use)) m.window = 0;
  if (m.window == 0) return;
  if (f.has("layer_types")) {
    m.window_pattern = pattern_of(f, "layer_types", m, 'S', [&](const Json& type) {
      f.require(type == "sliding_attention" || type == "full_attention", "layer_types", "expected sliding or full attention");
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
  m.vocab = f.integer("vocab_size");
  m.width = f.integer("hidden_size");
  m.layers = f.integer("num_hidden_layers");
  m.heads = f.integer("num_attention_heads");
  m.kv_heads = f.integer("num_key_value_heads", m.heads);
  m.head_width = f.integer("head_dim", 0);
  m.context = f.integer("max_position_embeddings", 2048);
  m.norm_eps = f.number("rms_norm_eps", 1e-6);
  m.tied = f.flag("tie_word_embeddings", false);
  m.attention_bias = f.flag("attention_bias", false);
  f.require(f.text("hidden_act", "silu") == "silu", "hidden_act", "only silu (SwiGLU) is implemented for this family");
  read_rope(f, m);
  return m;
}

ModelConfig gpt2(const Fields& f) {
  ModelConfig m = model_preset("gpt2");
  m.preset.clear();
  m.vocab = f.integer("vocab_size");
  m.width = f.integer("n_embd");
  m.layers = f.integer("n_layer");
  m.heads = m.kv_heads = f.integer("n_head");
  m.context = f.integer("n_positions", 1024);
  m.hidden = f.integer("n_inner", 0);
  m.norm_eps = f.number("layer_norm_epsilon", 1e-5);
  f.require(f.text("activation_function", "gelu_new") == "gelu_new", "activation_function", "expected gelu_new");
  f.require(!f.flag("scale_attn_by_inverse_layer_idx", false), "scale_attn_by_inverse_layer_idx", "not implemented");
  return m;
}

ModelConfig qwen3(const Fields& f, bool moe) {
  ModelConfig m = common(f);
  m.qk_norm = true;
  m.hidden = f.integer("intermediate_size", 0);
  read_window(f, m, false, 4096);
  if (!moe) return m;
  m.moe.experts = f.integer(f.has("num_local_experts") ? "num_local_experts" : "num_experts");
  m.moe.top_k = f.integer("num_experts_per_tok");
  m.moe.hidden = f.integer("moe_intermediate_size");
  m.moe.normalize = f.flag("norm_topk_prob", false);
  m.moe.aux_coefficient = f.number("router_aux_loss_coef", 0);
  f.require(f.integer("decoder_sparse_step", 1) == 1, "decoder_sparse_step", "only 1 is implemented");
  f.require(!f.has("mlp_only_layers") || f.json().at("mlp_only_layers").empty(), "mlp_only_layers", "not implemented");
  return m;
}

ModelConfig llama(const Fields& f) {
  ModelConfig m = common(f);
  m.hidden = f.integer("intermediate_size");
  f.require(!f.flag("mlp_bias", false), "mlp_bias", "not implemented");
  return m;
}

ModelConfig mistral(const Fields& f) {
  ModelConfig m = llama(f);
  read_window(f, m, true, 4096);
  return m;
}

/// SmolLM3: every n-th layer does not rotate.
ModelConfig smollm3(const Fields& f) {
  ModelConfig m = llama(f);
  m.tied = f.flag("tie_word_embeddings", true);
  read_rope(f, m, 2e6);
  const int64_t interval = f.integer("no_rope_layer_interval", 4);
  f.require(interval > 0, "no_rope_layer_interval", "expected a positive number");
  if (f.has("no_rope_layers"))
    m.rope_pattern = pattern_of(f, "no_rope_layers", m, 'R', [](const Json& rotates) { return rotates == 1 ? 'R' : 'N'; });
  else if (interval <= m.layers)
    m.rope_pattern = std::string(static_cast<size_t>(interval) - 1, 'R') + "N";
  read_window(f, m, false, 0);
  return m;
}

ModelConfig zaya(const Fields& f) {
  ModelConfig m = common(f);
  m.attention = AttentionKind::cca;
  m.residual = ResidualKind::scaled;
  m.moe.experts = f.integer("num_experts");
  m.moe.top_k = f.integer("num_experts_per_tok", 1);
  m.moe.hidden = f.integer("moe_intermediate_size");
  m.moe.router = RouterKind::zaya;
  m.moe.router_width = f.integer("router_hidden_size", 256);
  m.moe.skip_class = true;
  m.moe.balance = BalanceRule::adamw;
  f.require(m.moe.top_k == 1, "num_experts_per_tok", "zaya routes to one expert");
  f.require(f.integer("cca_time0", 2) == 2 && f.integer("cca_time1", 2) == 2, "cca_time0", "convolutions have width 2");
  return m;
}

}  // namespace

ModelConfig model_from_huggingface(const std::string& config_json, const std::string& path) {
  const Json json = Json::parse(config_json, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail("'{}' is not a JSON object", path);
  const Fields f(json, path);
  const std::string type = f.text("model_type", "");
  if (type == "gpt2") return gpt2(f);
  if (type == "llama") return llama(f);
  if (type == "mistral") return mistral(f);
  if (type == "smollm3") return smollm3(f);
  if (type == "qwen3") return qwen3(f, false);
  if (type == "qwen3_moe") return qwen3(f, true);
  if (type == "zaya") return zaya(f);
  throw Error(fmt::format("'{}': model_type is '{}'", path, type), "families: gpt2, llama, mistral, qwen3, qwen3_moe, smollm3, zaya");
}

}  // namespace ingot
