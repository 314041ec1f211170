// Routers: from the normed stream to logits over experts.
//   linear  logits = h W^T
//   zaya    r = W_down h + b;  r += gamma * r_below (exponential depth averaging);
//           logits = W_3 gelu(W_2 gelu(W_1 rmsnorm(r) + b_1) + b_2)            [ZAYA1-AMD] eq 2-5
// Logits and r are in the stream's type (fp32), whatever the compute type. With router_precision = f32 so
// is all between: products read the masters, and the compute type only rounded h, which widens exactly
// ([Megatron-MoE] §2.1.1). With bf16 products read operands in the compute type.
#pragma once
#include "nn/config.h"
#include "nn/context.h"

namespace ingot {

struct RouterOutput {
  Value logits_TE;
  Value state_TR;  ///< r after averaging, for the layer above; absent for linear
};

class Router {
 public:
  /// `first`: there is no router below, so zaya's does no depth averaging.
  Router(ParameterTable& table, const std::string& prefix, const ModelConfig& model, bool first);
  /// Runs in the segment "route" of `layer`, but ZAYA1's r in "stream", because the layer above reads it.
  RouterOutput forward(Context& c, const Value& h_TD, const Value& state_below_TR, int layer) const;

 private:
  bool zaya_ = false;
  bool full_precision_ = true;
  double eps_ = 0;  ///< of zaya's norm
  int weight_ = -1;
  int down_ = -1, down_bias_ = -1, eda_ = -1, norm_ = -1, fc1_ = -1, fc1_bias_ = -1, fc2_ = -1,
      fc2_bias_ = -1, out_ = -1;
};

}  // namespace ingot
