// The dense feed-forward sublayer: up (gate and up packed for gated kinds), nonlinearity, down.
#pragma once
#include "nn/context.h"
#include "ops/activation/activation.h"

namespace ingot {

struct MlpOptions {
  int64_t width = 0, hidden = 0;
  ActivationKind kind = ActivationKind::swiglu;
  bool bias = false;
  double init_std = 0.02, out_std = 0.02;
};

class Mlp {
 public:
  Mlp(ParameterTable& table, const std::string& prefix, const MlpOptions& options);
  Value forward(Context& c, const Value& h_TD) const;

 private:
  MlpOptions o_;
  int up_ = -1, up_bias_ = -1, down_ = -1, down_bias_ = -1;
};

}  // namespace ingot
