// The attention sublayer, and its grouped-query (MHA, GQA, MQA) and CCA form: projection, preparation,
// attention, output projection. The two forms differ in the preparation only: rotation and norm of queries
// and keys, or the convolutions of compressed convolutional attention ([ZAYA1-8B] §II-A1).
#pragma once
#include "nn/config.h"
#include "nn/context.h"

namespace ingot {

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
  /// Adds the parameters under `prefix` (for example "layers.3.attention").
  GroupedAttention(ParameterTable& table, const std::string& prefix, const ModelConfig& model, int64_t layer);
  Value forward(Context& c, const Value& h_TD, const Value& ve_TV, int64_t layer) const override;
  void set_rotary(const RotaryRule& rule) override { rotary_ = rule; }
  void set_window(int64_t window) override { window_ = window; }

 private:
  /// Rotation and norms of queries and keys, or CCA's convolutions; then value embeddings into the values.
  Value prepare(Context& c, Value qkv_TW, const Value& ve_TV) const;

  bool is_cca() const { return model_.attention == AttentionKind::cca; }

  ModelConfig model_;
  int64_t cache_layer_;  ///< the layer's number among those that a cached sequence keeps
  RotaryRule rotary_;
  int64_t window_;
  int qkv_ = -1, qkv_bias_ = -1, out_ = -1, out_bias_ = -1, q_norm_ = -1, k_norm_ = -1;
  int depthwise_ = -1, depthwise_bias_ = -1, grouped_ = -1, grouped_bias_ = -1, temperature_ = -1;
  int value_own_ = -1, value_table_ = -1;
};

}  // namespace ingot
