// The dense feed-forward sublayer: up (gate and up packed for gated kinds), nonlinearity, down.
#pragma once
#include "nn/config.h"
#include "nn/context.h"

namespace ingot {

class Mlp {
 public:
  /// Adds the parameters under `prefix` (for example "layers.3.mlp"): up [hidden or 2 hidden, width], down
  /// [width, hidden], and biases where `bias`.
  Mlp(ParameterTable& table, const std::string& prefix, const ModelConfig& model, int64_t hidden, bool bias);
  Value forward(Context& c, const Value& h_TD) const;

 private:
  ActivationKind kind_;
  int up_ = -1, up_bias_ = -1, down_ = -1, down_bias_ = -1;
};

}  // namespace ingot
