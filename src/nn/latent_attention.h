// Multi-head latent attention (DeepSeek-V2, V3): queries through a latent of their own (optional), keys and values of all
// heads from one latent and one shared rotated key. Training makes keys and values and runs ops/attention; cached
// sequences keep the latent and the rotated key only, and Context::absorb_latents chooses between making keys and values
// again (the bits of training) and attending in the latent space (ops/mla/mla.h).
#pragma once
#include "nn/attention.h"

namespace ingot {

struct LatentAttentionOptions {
  int64_t width = 0, heads = 0;
  int64_t q_rank = 0;  ///< 0: queries are projected from the stream
  int64_t kv_rank = 0;
  int64_t nope = 0, rope = 0, value = 0;  ///< channels per head
  RotaryRule rotary = {};
  double latent_eps = 1e-6;
  int64_t window = 0;
  double softcap = 0, scale = 1;
  double init_std = 0.02, out_std = 0.02;
  int64_t cache_layer = 0;  ///< number of the layer among those that a cached sequence keeps
};

class LatentAttention final : public Attention {
 public:
  LatentAttention(ParameterTable& table, const std::string& prefix, const LatentAttentionOptions& options);
  Value forward(Context& c, const Value& h_TD, const Value& ve_TV, int64_t layer) const override;
  void set_rotary(const RotaryRule& rule) override { o_.rotary = rule; }
  void set_window(int64_t window) override { o_.window = window; }

 private:
  /// Queries and latents of a call, on the tensor ranks' side.
  struct Projected {
    Value q, c, k_rope;
  };
  Projected projections(Context& c, const Value& h_TD) const;
  Value attend(Context& c, const Projected& p, int64_t heads, Value& max_logit) const;
  Value attend_cached(Context& c, const Projected& p, int64_t heads, Value& max_logit) const;

  LatentAttentionOptions o_;
  int down_ = -1, q_norm_ = -1, kv_norm_ = -1, q_up_ = -1, kv_up_ = -1, out_ = -1;
};

}  // namespace ingot
