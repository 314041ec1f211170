// The mixture-of-experts sublayer: route -> dispatch (permute) -> experts (grouped products) -> combine (unpermute),
// plus the shared expert. Dropless; the router weight is folded into the experts' nonlinearity.
#pragma once
#include <optional>

#include "nn/mlp.h"
#include "nn/moe/router.h"
#include "ops/route/route.h"

namespace ingot {

struct MoeOptions {
  RouterOptions router;
  RouteAttr route;
  int64_t width = 0, experts = 0, hidden = 0, shared_hidden = 0;
  ActivationKind kind = ActivationKind::swiglu;
  double init_std = 0.02, out_std = 0.02;
};

/// What the objective must weigh: scalars whose cotangents are the loss coefficients.
struct BalanceLosses {
  Value aux, z;
};

struct MoeOutput {
  Value y_TD;
  Value router_state_TR;  ///< for the next layer's depth averaging
  BalanceLosses losses;
};

class MoeLayer {
 public:
  MoeLayer(ParameterTable& table, const std::string& prefix, const MoeOptions& options);
  MoeOutput forward(Context& c, const Value& h_TD, const Value& router_state_below_TR, int64_t layer) const;

 private:
  Value experts(Context& c, const Value& h_TD, const RouteResult& chosen, int layer) const;
  MoeOptions o_;
  Router router_;
  int gate_up_ = -1, down_ = -1;
  std::optional<Mlp> shared_;
};

}  // namespace ingot
