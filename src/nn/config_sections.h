// Sections of a model's configuration (nn/config.h) that stand in tables of their own.
#pragma once
#include <cstdint>

#include "base/config.h"

namespace ingot {

enum class RopeScalingKind { none, linear, llama3, yarn };
constexpr auto enum_names(RopeScalingKind) {
  return names_in_order<RopeScalingKind>("none", "linear", "llama3", "yarn");
}
enum class HeadCapKind { none, tanh, sigmoid };
constexpr auto enum_names(HeadCapKind) {
  return names_in_order<HeadCapKind>("none", "tanh", "sigmoid");
}
/// Bound of the output logits z: cap tanh(z / divisor) (Gemma 2) or cap sigmoid(z / divisor)
/// (modded-nanogpt).
struct HeadCapConfig {
  HeadCapKind kind = HeadCapKind::none;
  double cap = 30;
  double divisor = 0;

  template <class Visitor>
  void visit(Visitor& v) {
    v("kind", kind, "none, tanh: cap tanh(z / divisor), or sigmoid: cap sigmoid(z / divisor)");
    v("cap", cap, "largest output logit", positive(1e6));
    v("divisor", divisor, "scale of the logits z; 0: cap for tanh, cap sqrt(width) / 4 for sigmoid",
      up_to(1e6));
  }
};

/// How the rotation's frequencies change for a longer context; formulas in ops/sequence/rotary.h.
struct RopeScalingConfig {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;
  int64_t original_context = 0;
  double low_freq_factor = 1, high_freq_factor = 4;
  double beta_slow = 1, beta_fast = 32;
  double attention_factor = 0;
  double mscale = 0, mscale_all_dim = 0;

  template <class Visitor>
  void visit(Visitor& v) {
    v("kind", kind, "none, linear, llama3 (Llama 3.1) or yarn");
    v("factor", factor, "how much longer the context becomes", between(1, 1e6));
    v("original_context", original_context, "llama3, yarn: tokens that the model was trained with before",
      up_to(bounds::kSequence));
    v("low_freq_factor", low_freq_factor,
      "llama3: pairs that turn less often in the original context are slowed fully", positive(1e6));
    v("high_freq_factor", high_freq_factor, "llama3: pairs that turn more often stay", positive(1e6));
    v("beta_slow", beta_slow, "yarn: pairs that turn less often in the original context are slowed fully",
      positive(1e6));
    v("beta_fast", beta_fast, "yarn: pairs that turn more often stay", positive(1e6));
    v("attention_factor", attention_factor,
      "yarn: factor on rotated vectors; 0: from factor, mscale, mscale_all_dim", up_to(1e6));
    v("mscale", mscale, "yarn, DeepSeek: weight of ln(factor) in attention_factor; 0: 1", up_to(1e6));
    v("mscale_all_dim", mscale_all_dim, "yarn, DeepSeek: the same in the attention scale, squared; 0: off",
      up_to(1e6));
  }
  /// 0.1 weight ln(factor) + 1.
  double yarn_magnitude(double weight) const;
};

/// Multi-head latent attention (attention = "mla"): ranks of the latents and channels of a head.
struct MlaConfig {
  int64_t q_rank = 0;
  int64_t kv_rank = 0;
  int64_t nope_width = 0, rope_width = 0, value_width = 0;
  double norm_eps = 1e-6;

  template <class Visitor>
  void visit(Visitor& v) {
    v("q_rank", q_rank, "width of the queries' latent; 0: queries come from the stream",
      up_to(bounds::kWidth));
    v("kv_rank", kv_rank, "width of the latent that keys and values are made from", up_to(bounds::kWidth));
    v("nope_width", nope_width, "channels of a query or key head that are not rotated",
      up_to(bounds::kWidth));
    v("rope_width", rope_width, "rotated channels; all heads share one such key", up_to(bounds::kWidth));
    v("value_width", value_width, "channels of a value head", up_to(bounds::kWidth));
    v("norm_eps", norm_eps, "epsilon of the latents' norms", positive(1));
  }
};

/// Multi-token prediction (DeepSeek-V3 report, §2.2): modules after the decoder that predict further tokens
/// in training.
struct MtpConfig {
  int64_t depths = 0;
  bool shared = false;
  double coefficient = 0.1;

  int64_t modules() const { return shared && depths > 0 ? 1 : depths; }
  template <class Visitor>
  void visit(Visitor& v) {
    v("depths", depths, "tokens predicted beyond the next one, by one module each; 0: off", up_to(64));
    v("shared", shared, "one module serves all depths");
    v("coefficient", coefficient, "weight of their mean loss beside the next token's", up_to(1e6));
  }
};

}  // namespace ingot
