// Routers: from the normed stream to logits over experts.
//   linear  logits = h W^T                                                     (spec megatron-moe §1.1)
//   zaya    r = W_down h + b;  r += gamma * r_below (exponential depth averaging);
//           logits = W_3 gelu(W_2 gelu(W_1 rmsnorm(r) + b_1) + b_2)            (spec zaya1 §1.7; 000 eq 2-5)
// Logits and r are in the stream's type (fp32), whatever the compute type.
#pragma once
#include "nn/context.h"

namespace ingot {

struct RouterOptions {
  bool zaya = false;
  int64_t width = 0, experts = 0, skip_classes = 0, hidden = 0;
  bool first = true;  ///< no layer below: no depth averaging
  double eps = 1e-5, init_std = 0.02;
  bool fan_in_init = false;  ///< std 1/sqrt(fan_in) for the router's matrices
};

struct RouterOutput {
  Value logits_TE;
  Value state_TR;  ///< r after averaging, for the layer above; absent for linear
};

class Router {
 public:
  Router(ParameterTable& table, const std::string& prefix, const RouterOptions& options);
  /// The segment "route" of `layer`; what ZAYA1's r comes from belongs to "stream", because the layer above goes on from it.
  RouterOutput forward(Context& c, const Value& h_TD, const Value& state_below_TR, int layer) const;

 private:
  RouterOptions o_;
  int weight_ = -1;
  int down_ = -1, down_bias_ = -1, eda_ = -1, norm_ = -1, fc1_ = -1, fc1_bias_ = -1, fc2_ = -1,
      fc2_bias_ = -1, out_ = -1;
};

}  // namespace ingot
