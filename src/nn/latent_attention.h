// Multi-head latent attention (DeepSeek-V2, V3): queries through a latent of their own (optional), keys and
// values of all heads from one latent and one shared rotated key. Training makes keys and values and runs
// ops/attention; cached sequences keep the latent and the rotated key only, and Context::absorb_latents
// chooses between recomputing keys and values (the bits of training) and attending in the latent space
// (ops/mla/mla.h).
#pragma once
#include "nn/attention.h"

namespace ingot {

class LatentAttention final : public Attention {
 public:
  /// Adds the parameters under `prefix` (for example "layers.3.attention").
  LatentAttention(ParameterTable& table, const std::string& prefix, const ModelConfig& model, int64_t layer);
  Value forward(Context& c, const Value& h_TD, const Value& ve_TV, int64_t layer) const override;
  void set_rotary(const RotaryRule& rule) override { rotary_ = rule; }
  void set_window(int64_t window) override { window_ = window; }

 private:
  /// Queries and latents of a call, on the tensor ranks' side.
  struct Projected {
    Value q, c, k_rope;
  };
  Projected projections(Context& c, const Value& h_TD) const;
  Value attend(Context& c, const Projected& p, int64_t heads, Value& max_logit) const;
  Value attend_cached(Context& c, const Projected& p, int64_t heads, Value& max_logit) const;

  MlaConfig config_;
  int64_t heads_;
  double softcap_, scale_;
  int64_t cache_layer_;  ///< the layer's number among those that a cached sequence keeps
  RotaryRule rotary_;
  int64_t window_;
  int down_ = -1, q_norm_ = -1, kv_norm_ = -1, q_up_ = -1, kv_up_ = -1, out_ = -1;
};

}  // namespace ingot
