// The mixture-of-experts sublayer: route -> dispatch (permute) -> experts (grouped products) -> combine
// (unpermute), plus the shared expert. Dropless unless a capacity is set; the router weight is folded into
// the experts' nonlinearity.
//
// Three options look at the whole batch, so a token's result depends on its neighbours (docs/moe.md).
// Capacity and Sinkhorn act where the tape records, that is in training; evaluation and decoding take every
// token's top-k and drop nothing. Expert choice has no such counterpart and refuses cached sequences.
//
// Latent experts ([Megatron-MoE] §7.3): the router reads the full width D; rows are sent and experts
// work in the width l < D, between W_down [l, D] before dispatch and W_up [D, l] after combine; the shared
// expert keeps the full width.
#pragma once
#include <functional>
#include <optional>

#include "nn/mlp.h"
#include "nn/moe/router.h"
#include "ops/route/route.h"

namespace ingot {

/// What the objective must weigh: scalars whose cotangents are the loss coefficients.
struct BalanceLosses {
  Value aux, z;
  Value sequence;  ///< absent unless asked for
};

struct MoeOutput {
  Value y_TD;
  Value router_state_TR;  ///< for the next layer's depth averaging
  BalanceLosses losses;
};

class MoeLayer {
 public:
  /// Adds the parameters under `prefix` (for example "layers.3.moe"). Layers from model.layers on are
  /// multi-token prediction's, whose routers have none below.
  MoeLayer(ParameterTable& table, const std::string& prefix, const ModelConfig& model, int64_t layer);
  MoeOutput forward(Context& c, const Value& h_TD, const Value& router_state_below_TR, int64_t layer) const;

 private:
  /// The experts of each token and their weights, with everything that is measured about them.
  RouteResult choose(Context& c, const Value& logits_TE, const RouterInputs& inputs, int layer) const;
  /// Most rows that an expert may get from this rank; 0: no bound.
  int64_t row_bound(const Context& c, int64_t tokens) const;
  Value experts(Context& c, const Value& h_TD, const RouteResult& chosen, int layer,
                const std::function<void()>& meanwhile) const;
  MoeConfig config_;
  ActivationKind kind_;
  RouteAttr route_;
  Router router_;
  int latent_down_ = -1, latent_up_ = -1, gate_up_ = -1, down_ = -1;
  std::optional<Mlp> shared_;
};

}  // namespace ingot
