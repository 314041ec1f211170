// See huggingface_read.h: the families without experts.
#include <cmath>

#include "base/error.h"
#include "models/huggingface_read.h"
#include "models/presets.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

ModelConfig from_gpt2(const Fields& f) {
  ModelConfig m = model_preset("gpt2");
  m.preset.clear();
  m.vocab = f.integer("vocab_size", 1, kMaxVocab);
  m.width = f.integer("n_embd");
  m.layers = f.integer("n_layer", 1, kMaxLayers);
  m.heads = m.kv_heads = f.integer("n_head", 1, kMaxHeads);
  m.context = f.integer("n_positions");
  m.hidden = f.integer_or("n_inner", 0);
  m.norm_eps = f.number("layer_norm_epsilon", kTiny, 1);
  return m;
}

/// llama, mistral: dense, all layers alike.
ModelConfig from_llama(const Fields& f) {
  ModelConfig m = common_fields(f);
  m.hidden = f.integer("intermediate_size");
  m.mlp_bias = f.flag("mlp_bias");
  read_rope(f, m);
  read_one_window(f, m);
  return m;
}

ModelConfig from_granite(const Fields& f) {
  ModelConfig m = from_llama(f);
  m.embedding_scale = f.number("embedding_multiplier", kTiny, kHuge);
  m.logit_divisor = f.number("logits_scaling", kTiny, kHuge);
  m.sublayer_scale = f.number("residual_multiplier", kTiny, kHuge);
  m.attention_scale = f.number("attention_multiplier", kTiny, kHuge);
  return m;
}

/// Phi-3: Llama with packed matrices, of which a part of each head may rotate.
ModelConfig from_phi3(const Fields& f) {
  ModelConfig m = common_fields(f);
  m.hidden = f.integer("intermediate_size");
  m.rotary_fraction = f.number("partial_rotary_factor", 0, 1);
  read_rope(f, m, true);
  const auto whole = std::floor(m.rotary_fraction * static_cast<double>(m.key_width()));
  f.require(whole >= 2 && whole == 2 * std::floor(whole / 2), "partial_rotary_factor",
            fmt::format("{} of {} channels would rotate; expected an even number", whole, m.key_width()));
  if (static_cast<double>(m.rotary_dims()) != whole)
    m.rotary_fraction = whole / static_cast<double>(m.key_width());
  f.require(m.rope_scaling.kind == RopeScalingKind::none,
            f.value("rope_scaling").is_object() ? "rope_scaling" : "rope_parameters",
            "the family has longrope, which is not implemented, and no other scaling");
  read_one_window(f, m);
  return m;
}

/// OLMo 2: norms stand behind the sublayers; one norm for all queries, one for all keys.
ModelConfig from_olmo2(const Fields& f) {
  ModelConfig m = common_fields(f);
  m.hidden = f.integer("intermediate_size");
  m.norm_position = NormPosition::after;
  m.qk_norm = m.qk_norm_joint = true;
  read_rope(f, m);
  read_one_window(f, m);
  return m;
}

/// The rotations of families that have one for layers that slide and one for the others. `full`, `sliding`:
/// bases where the tables say nothing. Windows are known.
void read_two_ropes(const Fields& f, ModelConfig& m, double full, double sliding) {
  static constexpr FieldRule kKinds[] = {{"full_attention", FieldUse::read, "null"},
                                         {"sliding_attention", FieldUse::read, "null"}};
  f.require(m.key_width() > 0 && m.key_width() % 2 == 0, "head_dim",
            fmt::format("channels turn in pairs, a head has {}", m.key_width()));
  m.rope_theta = full;
  double window_theta = sliding;
  if (!f.is_null("rope_parameters")) {
    const Fields kinds = f.table("rope_parameters", {kKinds});
    const auto of = [&](const char* kind, double& theta, const std::function<void(const Fields&)>& then) {
      if (kinds.is_null(kind)) return;
      const Fields rope = kinds.table(kind, huggingface_rope_fields());
      rope.require(rope.is_null("partial_rotary_factor") || rope.number("partial_rotary_factor", 0, 1) == 1,
                   "partial_rotary_factor", "in this family the whole head rotates");
      if (!rope.is_null("rope_theta")) theta = rope.number("rope_theta", 1, kHuge);
      then(rope);
    };
    of("full_attention", m.rope_theta, [&](const Fields& rope) { read_rope_scaling(f, rope, m); });
    of("sliding_attention", window_theta, [&](const Fields& rope) {
      const char* const name = rope.is_null("rope_type") ? "type" : "rope_type";
      rope.require(rope.text(name) == "default", name, "layers that slide rotate plainly here");
    });
  }
  const Json& older = f.value("rope_scaling");
  f.require(older.is_null() || older.is_object(), "rope_scaling", "expected a table");
  if (older.is_object() && !older.empty()) {
    const Fields rope = f.table("rope_scaling", huggingface_rope_fields());
    f.require(f.is_null("rope_parameters"), "rope_scaling",
              "rope_parameters.full_attention says something too; give one of the two");
    rope.require(!rope.is_null("rope_type"), "rope_type", "in this family the kind stands under this name");
    if (!rope.is_null("rope_theta")) m.rope_theta = rope.number("rope_theta", 1, kHuge);
    read_rope_scaling(f, rope, m);
  }
  if (m.window == 0) return;
  m.window_rope_theta = window_theta;
  m.window_rope_scaling = m.rope_scaling.kind == RopeScalingKind::none;
}

double theta_or(const Fields& f, const char* name, double otherwise) {
  return f.is_null(name) ? otherwise : f.number(name, 1, kHuge);
}

/// OLMo 3: OLMo 2 with windows, of which every fourth layer has none.
ModelConfig from_olmo3(const Fields& f) {
  ModelConfig m = common_fields(f);
  m.hidden = f.integer("intermediate_size");
  m.norm_position = NormPosition::after;
  m.qk_norm = m.qk_norm_joint = true;
  read_windows(f, m, true, [](int64_t l) { return l % 4 != 3; });
  read_two_ropes(f, m, theta_or(f, "rope_theta", 5e5), 5e5);
  return m;
}

ModelConfig from_gemma(const Fields& f) {
  ModelConfig m = common_fields(f);
  m.hidden = f.integer("intermediate_size");
  m.mlp = ActivationKind::geglu;
  m.norm_offset = 1;
  m.embedding_scale = std::sqrt(static_cast<double>(m.width));
  return m;
}

/// What Gemma 2 and 3 have beyond the first.
ModelConfig from_gemma_2_or_3(const Fields& f) {
  ModelConfig m = from_gemma(f);
  m.norm_position = NormPosition::both;
  m.attention_scale = 1 / std::sqrt(static_cast<double>(f.integer("query_pre_attn_scalar")));
  if (!f.is_null("final_logit_softcapping"))
    m.head_cap = {HeadCapKind::tanh, f.number("final_logit_softcapping", kTiny, kHuge), 0};
  return m;
}

ModelConfig from_gemma1(const Fields& f) {
  ModelConfig m = from_gemma(f);
  read_rope(f, m);
  read_one_window(f, m);
  return m;
}

ModelConfig from_gemma2(const Fields& f) {
  ModelConfig m = from_gemma_2_or_3(f);
  if (!f.is_null("attn_logit_softcapping"))
    m.logit_softcap = f.number("attn_logit_softcapping", kTiny, kHuge);
  read_windows(f, m, true, [](int64_t l) { return l % 2 == 0; });
  read_rope(f, m);
  return m;
}

ModelConfig from_gemma3(const Fields& f) {
  ModelConfig m = from_gemma_2_or_3(f);
  m.qk_norm = true;
  const int64_t pattern = f.integer("sliding_window_pattern");
  read_windows(f, m, true, [&](int64_t l) { return (l + 1) % pattern != 0; });
  read_two_ropes(f, m, theta_or(f, "rope_theta", 1e6), theta_or(f, "rope_local_base_freq", 1e4));
  return m;
}

/// Qwen 2 and 3: windows from a layer on.
void read_qwen_layers(const Fields& f, ModelConfig& m) {
  m.hidden = f.integer("intermediate_size");
  read_rope(f, m);
  const int64_t full = f.integer("max_window_layers", 0);
  read_windows(f, m, f.flag("use_sliding_window"), [&](int64_t l) { return l >= full; });
}

ModelConfig from_qwen2(const Fields& f) {
  ModelConfig m = common_fields(f);
  m.attention_bias = true;
  m.attention_out_bias = false;
  read_qwen_layers(f, m);
  return m;
}

ModelConfig from_qwen3(const Fields& f) {
  ModelConfig m = common_fields(f);
  m.qk_norm = true;
  read_qwen_layers(f, m);
  return m;
}

/// SmolLM3: every n-th layer does not rotate; where windows are on, those slide.
ModelConfig from_smollm3(const Fields& f) {
  ModelConfig m = common_fields(f);
  m.hidden = f.integer("intermediate_size");
  m.mlp_bias = f.flag("mlp_bias");
  read_rope(f, m);
  const int64_t interval = f.integer("no_rope_layer_interval");
  if (!f.is_null("no_rope_layers"))
    m.rope_pattern = pattern_of(f, "no_rope_layers", m, 'R', false, [&](const Json& rotates) {
      f.require(rotates == 0 || rotates == 1, "no_rope_layers", "expected zeros and ones");
      return rotates == 1 ? 'R' : 'N';
    });
  else if (interval <= m.layers)
    m.rope_pattern = std::string(static_cast<size_t>(interval) - 1, 'R') + "N";
  read_windows(f, m, f.flag("use_sliding_window"), [&](int64_t l) { return m.rotary_of(l).dims == 0; });
  return m;
}

}  // namespace

ModelConfig read_dense_family(const Fields& f, const std::string& type) {
  if (type == "gpt2") return from_gpt2(f);
  if (type == "gemma") return from_gemma1(f);
  if (type == "gemma2") return from_gemma2(f);
  if (type == "gemma3_text") return from_gemma3(f);
  if (type == "granite") return from_granite(f);
  if (type == "olmo2") return from_olmo2(f);
  if (type == "olmo3") return from_olmo3(f);
  if (type == "phi3") return from_phi3(f);
  if (type == "qwen2") return from_qwen2(f);
  if (type == "qwen3") return from_qwen3(f);
  if (type == "smollm3") return from_smollm3(f);
  return from_llama(f);
}

}  // namespace ingot
