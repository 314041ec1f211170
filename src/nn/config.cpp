// See config.h: what a valid model is.
#include "nn/config.h"

#include <algorithm>
#include <cmath>

#include "nn/attention_registry.h"

namespace ingot {

int64_t ModelConfig::key_width() const {
  if (is_mla()) return mla.nope_width + mla.rope_width;
  return head_width > 0 ? head_width : width / heads;
}

int64_t ModelConfig::cache_width() const {
  return is_mla() ? mla.kv_rank + mla.rope_width : 2 * kv_heads * key_width();
}

int64_t ModelConfig::rotary_dims() const {
  if (position != PositionKind::rope) return 0;
  if (is_mla()) return mla.rope_width;
  return static_cast<int64_t>(std::llround(static_cast<double>(key_width()) * rotary_fraction));
}

namespace {

/// The letter of a layer in a pattern that repeats; `all` where there is no pattern.
char letter_of(const std::string& pattern, int64_t layer, char all) {
  return pattern.empty() ? all : pattern[static_cast<size_t>(layer) % pattern.size()];
}

void validate_pattern(ConfigErrors& e, const char* name, const std::string& pattern, const char* letters,
                      int64_t layers) {
  if (pattern.find_first_not_of(letters) != std::string::npos)
    e.add(name, "\"{}\": a pattern is a word of the letters {}, one per layer, for example \"{}\"", pattern,
          letters, std::string(3, letters[0]) + std::string(letters).back());
  else if (static_cast<int64_t>(pattern.size()) > layers)
    e.add(name, "\"{}\" has {} letters for {} layers", pattern, pattern.size(), layers);
}

RotaryKind kind_of(RopeScalingKind kind) {
  switch (kind) {
    case RopeScalingKind::none:
      return RotaryKind::plain;
    case RopeScalingKind::linear:
      return RotaryKind::linear;
    case RopeScalingKind::llama3:
      return RotaryKind::llama3;
    case RopeScalingKind::yarn:
      return RotaryKind::yarn;
  }
  return RotaryKind::plain;
}

void validate_scaling(ConfigErrors& e, const RopeScalingConfig& s) {
  if (s.kind == RopeScalingKind::none) return;
  if (s.kind == RopeScalingKind::linear) return;
  if (s.original_context < 1)
    e.add("rope_scaling.original_context",
          "{} needs the context that the model was trained with before, found {}", name_of(s.kind),
          s.original_context);
  if (s.kind == RopeScalingKind::llama3 && s.low_freq_factor >= s.high_freq_factor)
    e.add("rope_scaling.low_freq_factor", "must lie between 0 and high_freq_factor = {}, found {}",
          s.high_freq_factor, s.low_freq_factor);
  if (s.kind == RopeScalingKind::yarn && s.beta_slow >= s.beta_fast)
    e.add("rope_scaling.beta_slow", "must lie between 0 and beta_fast = {}, found {}", s.beta_fast,
          s.beta_slow);
}

void validate_positions(ConfigErrors& e, const ModelConfig& m) {
  if (!m.is_mla() && (m.rotary_dims() % 2 != 0 || m.rotary_dims() > m.key_width()))
    e.add("rotary_fraction", "gives {} rotated channels of {}; it must be even and at most the head's width",
          m.rotary_dims(), m.key_width());
  const bool rope = m.position == PositionKind::rope;
  validate_pattern(e, "rope_pattern", m.rope_pattern, "RN", m.layers);
  validate_pattern(e, "window_pattern", m.window_pattern, "SHF", m.layers);
  if (!rope && !m.rope_pattern.empty())
    e.add("rope_pattern", "chooses layers that rotate, but position is {}; use position = \"rope\"",
          name_of(m.position));
  if (m.half_truncated_rope && (!rope || m.rotary_dims() % 4 != 0))
    e.add("half_truncated_rope", "needs position = \"rope\" and rotated channels in fours, found {} and {}",
          name_of(m.position), m.rotary_dims());
  if (m.half_truncated_rope && m.rope_scaling.kind != RopeScalingKind::none)
    e.add("rope_scaling.kind", "half_truncated_rope has frequencies of its own; choose one of the two");
  if (m.window == 0 && !m.window_pattern.empty())
    e.add("window_pattern", "chooses layers that slide, but window is 0; set window to its width in tokens");
  if (m.window_block > 0 && (m.window == 0 || m.window % m.window_block != 0))
    e.add("window_block", "window = {} must be a multiple of it, found {}", m.window, m.window_block);
  if (m.window_rope_theta != 0 && m.window == 0)
    e.add("window_rope_theta", "no layer has a window; set window");
  if (!m.window_rope_scaling && (m.window == 0 || m.rope_scaling.kind == RopeScalingKind::none))
    e.add("window_rope_scaling", "false is for models with window and rope_scaling");
  validate_scaling(e, m.rope_scaling);
}

void validate_mla(ConfigErrors& e, const ModelConfig& m) {
  const MlaConfig& a = m.mla;
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"mla.kv_rank", a.kv_rank},
                                    {"mla.nope_width", a.nope_width},
                                    {"mla.rope_width", a.rope_width},
                                    {"mla.value_width", a.value_width}})
    if (value < 1)
      e.add(name,
            "attention = \"mla\" needs it: DeepSeek-V3 has kv_rank 512, nope_width 128, rope_width 64, "
            "value_width 128; found {}",
            value);
  if (a.rope_width % 2 != 0) e.add("mla.rope_width", "channels turn in pairs, found {}", a.rope_width);
  if (m.kv_heads != m.heads)
    e.add("kv_heads", "latent attention makes keys for each of heads = {}; set kv_heads to it, found {}",
          m.heads, m.kv_heads);
  if (m.head_width != 0) e.add("head_width", "latent attention takes widths from [model.mla]; leave it out");
  if (m.rotary_fraction != 1)
    e.add("rotary_fraction", "latent attention rotates mla.rope_width channels; leave it out");
  if (m.qk_norm) e.add("qk_norm", "latent attention norms its latents instead");
  if (m.norm_offset != 0) e.add("norm_offset", "the norms of latent attention's latents have none");
  if (m.attention_bias) e.add("attention_bias", "latent attention has no biases");
  if (!m.norm_weight) e.add("norm_weight", "the norms of latent attention's latents have weights");
  if (m.window_block > 0) e.add("window_block", "latent attention has windows of tokens; leave it out");
  if (m.value_embeddings > 0)
    e.add("value_embeddings", "latent attention has no values to mix them into; leave it out");
  if (m.position == PositionKind::learned)
    e.add("position",
          "latent attention has rotary channels of its own; use rope, or none to leave them unrotated");
}

void validate_stream(ConfigErrors& e, const ModelConfig& m) {
  validate_pattern(e, "attention_pattern", m.attention_pattern, "AN", m.layers);
  if (!m.attention_pattern.empty() && m.attention_pattern.find('A') == std::string::npos)
    e.add("attention_pattern", "\"{}\" leaves no layer that attends", m.attention_pattern);
  if (m.residual != ResidualKind::plain && (m.input_mix || m.unet_skips))
    e.add("residual",
          "{} merges outputs in another way than input_mix and unet_skips, which need residual = \"plain\"",
          name_of(m.residual));
  if (m.residual != ResidualKind::plain && m.norm_position == NormPosition::after)
    e.add("norm_position", "\"after\" needs residual = \"plain\", found {}", name_of(m.residual));
  if (m.norm_offset != 0 && !m.norm_weight) e.add("norm_offset", "needs norm_weight = true");
  if (m.mtp.depths > 0 && (m.input_mix || m.unet_skips || m.value_embeddings > 0 || !m.attends(m.layers - 1)))
    e.add("mtp.depths", "its modules know neither input_mix, unet_skips nor value_embeddings, and attend");
  if (m.unet_skips && m.layers % 2 != 0)
    e.add("unet_skips", "needs an even number of layers, found {}", m.layers);
  if (2 * m.value_embeddings > m.layers)
    return e.add("value_embeddings", "the first and last {} of {} layers must be different ones",
                 m.value_embeddings, m.layers);
  for (int64_t i = 0; i < std::min(m.value_embeddings, static_cast<int64_t>(m.attention_pattern.size()));
       ++i)  // it repeats
    for (const int64_t l : {i, m.layers - 1 - i})
      if (!m.attends(l))
        e.add("value_embeddings", "layer {} reads a table, but attention_pattern gives it no attention", l);
}

}  // namespace

double RopeScalingConfig::yarn_magnitude(double weight) const {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

int64_t ModelConfig::window_of(int64_t layer) const {
  const char letter = letter_of(window_pattern, layer, 'S');
  if (letter == 'F' || window == 0) return 0;
  const int64_t unit = std::max<int64_t>(1, window_block);
  return letter == 'S' ? window : std::max<int64_t>(1, window / unit / 2) * unit;
}

bool ModelConfig::attends(int64_t layer) const {
  return letter_of(attention_pattern, std::min(layer, layers - 1), 'A') == 'A';
}

int64_t ModelConfig::cache_layer(int64_t layer) const {
  int64_t n = 0;
  for (int64_t l = 0; l < layer; ++l) n += attends(l);
  return n;
}

int64_t ModelConfig::value_table(int64_t layer) const {
  const int64_t last = layers - value_embeddings;  // from here on the tables come a second time
  return layer < value_embeddings ? layer : layer >= last && layer < layers ? layer - last : -1;
}

SoftCap ModelConfig::head_cap_of() const {
  const double cap = head_cap.cap, divisor = head_cap.divisor;
  switch (head_cap.kind) {
    case HeadCapKind::none:
      break;
    case HeadCapKind::tanh:
      return {cap, divisor != 0 ? divisor : cap, 0};
    case HeadCapKind::sigmoid:
      return {cap / 2, 2 * (divisor != 0 ? divisor : cap * std::sqrt(static_cast<double>(width)) / 4),
              cap / 2};
  }
  return {};
}

RotaryRule ModelConfig::rotary_of(int64_t layer) const {
  RotaryRule r;
  if (position != PositionKind::rope || letter_of(rope_pattern, layer, 'R') == 'N') return r;
  const RopeScalingConfig& s = rope_scaling;
  r.dims = rotary_dims();
  r.interleaved = interleaved_rope;
  r.theta = window_rope_theta != 0 && window_of(layer) > 0 ? window_rope_theta : rope_theta;
  const bool scales = window_rope_scaling || window_of(layer) == 0;
  r.kind = half_truncated_rope ? RotaryKind::half_truncated : scales ? kind_of(s.kind) : RotaryKind::plain;
  if (r.kind == RotaryKind::plain || half_truncated_rope) return r;
  r.factor = s.factor;
  if (s.kind == RopeScalingKind::linear) return r;
  const bool yarn = s.kind == RopeScalingKind::yarn;
  r.low = yarn ? s.beta_slow : s.low_freq_factor;
  r.high = yarn ? s.beta_fast : s.high_freq_factor;
  r.original_context = static_cast<double>(s.original_context);
  if (!yarn) return r;
  const bool both = s.mscale != 0 && s.mscale_all_dim != 0;
  r.magnitude = s.attention_factor != 0 ? s.attention_factor
                : both                  ? s.yarn_magnitude(s.mscale) / s.yarn_magnitude(s.mscale_all_dim)
                                        : s.yarn_magnitude(1);
  return r;
}

double ModelConfig::attention_scale_of() const {
  const double scale =
      attention_scale != 0 ? attention_scale : 1 / std::sqrt(static_cast<double>(key_width()));
  if (rope_scaling.kind != RopeScalingKind::yarn || rope_scaling.mscale_all_dim == 0) return scale;
  const double magnitude = rope_scaling.yarn_magnitude(rope_scaling.mscale_all_dim);
  return scale * magnitude * magnitude;
}

double ModelConfig::output_std() const {
  return scale_output_init ? init_std / std::sqrt(2.0 * static_cast<double>(layers)) : init_std;
}

ModelConfig without_adapters(ModelConfig model) {
  model.lora = {};
  return model;
}

void ModelConfig::validate(ConfigErrors& e) const {
  if (!is_mla() && static_cast<double>(heads * key_width()) > bounds::kHidden)
    return e.add("heads", "{} heads of {} channels are more than {:g} channels", heads, key_width(),
                 bounds::kHidden);
  if (heads % kv_heads != 0)
    e.add("kv_heads", "heads = {} must be a multiple of kv_heads = {}", heads, kv_heads);
  if (is_mla())
    validate_mla(e, *this);
  else if (mla.kv_rank != 0)
    e.add("mla.kv_rank", "is set, but attention is {}", name_of(attention));
  if (head_width == 0 && !is_mla() && width % heads != 0)
    e.add("heads", "width = {} is not a multiple of heads = {}; set head_width", width, heads);
  validate_positions(e, *this);
  if (attention == AttentionKind::cca) {
    if (kv_heads * key_width() % 2 != 0)
      e.add("kv_heads", "cca delays half of kv_heads * head_width = {} value channels; that must be even",
            kv_heads * key_width());
    if (position != PositionKind::rope) e.add("position", "cca rotates queries and keys; use rope");
    if (qk_norm) e.add("qk_norm", "cca normalises queries and keys itself");
  }
  if (qk_norm_joint && !qk_norm) e.add("qk_norm_joint", "needs qk_norm = true");
  if (!attention_out_bias && !attention_bias) e.add("attention_out_bias", "needs attention_bias = true");
  validate_stream(e, *this);
  if (mlp == ActivationKind::silu || mlp == ActivationKind::soft_cap)
    e.add("mlp", "{} is no nonlinearity of an MLP; use gelu, gelu_tanh, relu2, swiglu or geglu",
          name_of(mlp));
  validate_init(*this, e);
  if (norm_bias && !norm_weight) e.add("norm_bias", "needs norm_weight = true");
  if (norm_bias && norm == NormKind::rms) e.add("norm_bias", "rms norm has no bias");
  validate_moe(moe, layers, e);
  validate_lora(lora, e);
  if (!custom_attention.empty() && find_attention(custom_attention) == nullptr)
    e.add("custom_attention", "no attention '{}' is registered; {}", custom_attention,
          describe_registered_attentions());
}

}  // namespace ingot
