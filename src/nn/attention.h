// The attention sublayer, and its grouped-query and CCA form: projection, preparation (rotation and norm, or ZAYA1's compressed convolutions), attention,
// output projection. Grouped-query (MHA, GQA, MQA) and CCA differ in the preparation only.
#pragma once
#include "nn/context.h"
#include "ops/sequence/rotary.h"

namespace ingot {

struct AttentionOptions {
  int64_t width = 0, heads = 0, kv_heads = 0, head_width = 0;
  bool cca = false;        ///< compressed convolutional attention (001 §II-A1)
  RotaryRule rotary = {};  ///< dims 0: no rotation
  bool qk_norm = false;
  double eps = 1e-5;
  int64_t window = 0, window_block = 0;
  double softcap = 0, scale = 0;
  bool bias = false;
  bool norm_weight = true;  ///< learned weights in the norm of queries and keys
  bool value_mix = false;   ///< v <- a v + b ve, learned scalars
  int64_t cache_layer = 0;  ///< number of the layer among those that a cached sequence keeps
  double init_std = 0.02, out_std = 0.02;
};

class Attention {
 public:
  virtual ~Attention() = default;
  /// h_TD (normed stream) -> y_TD. `ve_TV`: value embeddings of the tokens, with value_mix; may be absent.
  virtual Value forward(Context& c, const Value& h_TD, const Value& ve_TV, int64_t layer) const = 0;
  /// Another rotation, or window in tokens, from the next forward on.
  virtual void set_rotary(const RotaryRule& rule) = 0;
  virtual void set_window(int64_t window) = 0;
};

class GroupedAttention final : public Attention {
 public:
  /// Registers the parameters under `prefix` (for example "layers.3.attention").
  GroupedAttention(ParameterTable& table, const std::string& prefix, const AttentionOptions& options);
  Value forward(Context& c, const Value& h_TD, const Value& ve_TV, int64_t layer) const override;
  void set_rotary(const RotaryRule& rule) override { o_.rotary = rule; }
  void set_window(int64_t window) override { o_.window = window; }

 private:
  /// Rotation and norms of queries and keys, or CCA's convolutions; then value embeddings into the values.
  Value prepare(Context& c, Value qkv_TW, const Value& ve_TV) const;

  AttentionOptions o_;
  int qkv_ = -1, qkv_bias_ = -1, out_ = -1, out_bias_ = -1, q_norm_ = -1, k_norm_ = -1;
  int depthwise_ = -1, depthwise_bias_ = -1, grouped_ = -1, grouped_bias_ = -1, temperature_ = -1;
  int value_own_ = -1, value_table_ = -1;
};

}  // namespace ingot
