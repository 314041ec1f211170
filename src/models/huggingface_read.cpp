// See huggingface_read.h.
#include "models/huggingface_read.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {

using Json = nlohmann::json;

void read_rope_scaling(const Fields& f, const Fields& rope, ModelConfig& m) {
  m.rope_scaling = {};
  RopeScalingConfig& s = m.rope_scaling;
  const char* const name = rope.is_null("rope_type") ? "type" : "rope_type";
  const std::string kind = rope.text(name);
  if (kind == "default") return;
  if (kind == "linear")
    s.kind = RopeScalingKind::linear;
  else if (kind == "llama3")
    s.kind = RopeScalingKind::llama3;
  else if (kind == "yarn")
    s.kind = RopeScalingKind::yarn;
  else
    rope.refuse(name, "rotations are default, linear, llama3 or yarn");
  const bool yarn = s.kind == RopeScalingKind::yarn, latent = m.is_mla();
  const double squared = rope.is_null("mscale_all_dim") ? 0 : rope.number("mscale_all_dim", 0, kHuge);
  rope.require(yarn || !latent || squared == 0, "mscale_all_dim",
               "latent attention multiplies by it here only where the rotation is yarn's");
  if (s.kind != RopeScalingKind::linear)
    s.original_context = f.integer_or("original_max_position_embeddings",
                                      rope.integer_or("original_max_position_embeddings", m.context));
  s.factor = yarn && rope.is_null("factor")
                 ? static_cast<double>(m.context) / static_cast<double>(s.original_context)
                 : rope.number("factor", 1, kHuge);
  if (s.kind == RopeScalingKind::llama3) {
    s.low_freq_factor = rope.number("low_freq_factor", kTiny, kHuge);
    s.high_freq_factor = rope.number("high_freq_factor", kTiny, kHuge);
  }
  if (!yarn) return;
  const auto positive_or = [&](const char* field, double otherwise) {
    return rope.is_null(field) ? otherwise : rope.number(field, kTiny, kHuge);
  };
  s.beta_slow = positive_or("beta_slow", 1);
  s.beta_fast = positive_or("beta_fast", 32);
  s.attention_factor = positive_or("attention_factor", 0);
  s.mscale = rope.is_null("mscale") ? 0 : rope.number("mscale", 0, kHuge);
  s.mscale_all_dim = squared;
  if (latent) return;
  // Only DeepSeek's attention has mscale_all_dim in its scale; elsewhere the two make up one factor.
  if (s.attention_factor == 0 && s.mscale != 0 && squared != 0)
    s.attention_factor = s.yarn_magnitude(s.mscale) / s.yarn_magnitude(squared);
  s.mscale = s.mscale_all_dim = 0;
}

void read_rope(const Fields& f, ModelConfig& m, bool partial) {
  const bool older = f.value("rope_scaling").is_object() && !f.value("rope_scaling").empty();
  const char* const name = older ? "rope_scaling" : "rope_parameters";
  f.require(m.is_mla() || (m.key_width() > 0 && m.key_width() % 2 == 0), "head_dim",
            fmt::format("channels turn in pairs, a head has {}", m.key_width()));
  m.rope_theta = f.number("rope_theta", 1, kHuge);
  if (!older)
    f.require(f.is_null("rope_scaling") || f.value("rope_scaling").is_object(), "rope_scaling",
              "expected a table");
  if (f.is_null(name)) return;
  const Fields rope = f.table(name, huggingface_rope_fields());
  rope.require(
      partial || rope.is_null("partial_rotary_factor") || rope.number("partial_rotary_factor", 0, 1) == 1,
      "partial_rotary_factor", "in this family the whole head rotates");
  if (partial && !rope.is_null("partial_rotary_factor"))
    m.rotary_fraction = rope.number("partial_rotary_factor", 0, 1);
  if (!rope.is_null("rope_theta")) m.rope_theta = rope.number("rope_theta", 1, kHuge);
  read_rope_scaling(f, rope, m);
}

std::string pattern_of(const Fields& f, const char* name, const ModelConfig& m, char all, bool exact,
                       const std::function<char(const Json&)>& letter) {
  const Json& list = f.value(name);
  const auto size = static_cast<int64_t>(list.size());
  f.require(list.is_array() && (exact ? size == m.layers : size >= m.layers), name,
            "expected one entry per layer");
  std::string pattern;
  for (size_t l = 0; l < static_cast<size_t>(m.layers); ++l) pattern += letter(list[l]);
  return pattern.find_first_not_of(all) == std::string::npos ? "" : pattern;
}

namespace {

/// S slides, F sees all.
std::string pattern_of_types(const Fields& f, const ModelConfig& m) {
  return pattern_of(f, "layer_types", m, 'S', true, [&](const Json& type) {
    f.require(type == "sliding_attention" || type == "full_attention", "layer_types",
              "expected sliding_attention or full_attention");
    return type == "sliding_attention" ? 'S' : 'F';
  });
}

}  // namespace

void read_one_window(const Fields& f, ModelConfig& m, bool use) {
  m.window = use ? f.integer_or("sliding_window", 0) : 0;
  if (f.is_null("layer_types")) return;
  const std::string pattern = pattern_of_types(f, m);
  f.require(pattern == (m.window > 0 ? "" : std::string(static_cast<size_t>(m.layers), 'F')), "layer_types",
            m.window > 0 ? "in this family all layers slide" : "no layer of this model slides");
}

void read_windows(const Fields& f, ModelConfig& m, bool use, const std::function<bool(int64_t)>& slides) {
  const int64_t window = use ? f.integer_or("sliding_window", 0) : 0;
  std::string pattern;
  if (f.is_null("layer_types"))
    for (int64_t l = 0; l < m.layers; ++l) pattern += window > 0 && slides(l) ? 'S' : 'F';
  else
    pattern = pattern_of_types(f, m);
  const bool any = pattern.empty() || pattern.find('S') != std::string::npos;
  f.require(!any || window > 0, "layer_types",
            "layers slide, but the file gives no window (sliding_window, use_sliding_window)");
  if (!any) return;
  m.window = window;
  m.window_pattern = pattern.find('F') == std::string::npos ? "" : pattern;
}

ModelConfig common_fields(const Fields& f) {
  ModelConfig m;
  m.vocab = f.integer("vocab_size", 1, kMaxVocab);
  m.width = f.integer("hidden_size");
  m.layers = f.integer("num_hidden_layers", 1, kMaxLayers);
  m.heads = f.integer("num_attention_heads", 1, kMaxHeads);
  m.kv_heads = f.integer_or("num_key_value_heads", m.heads, kMaxHeads);
  m.head_width = f.integer_or("head_dim", 0, int64_t{1} << 16);
  m.context = f.integer("max_position_embeddings", 1, int64_t{1} << 40);
  m.norm_eps = f.number("rms_norm_eps", kTiny, 1);
  m.tied = f.flag("tie_word_embeddings");
  m.attention_bias = f.flag("attention_bias");
  return m;
}

}  // namespace ingot
