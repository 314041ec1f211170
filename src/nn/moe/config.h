// The description of a decoder's mixture-of-experts layers: a section of ModelConfig.
#pragma once
#include <array>
#include <cstdint>

#include "base/config.h"
#include "ops/assign/assign.h"
#include "ops/capacity/capacity.h"
#include "ops/route/route.h"

namespace ingot {

enum class RouterKind { linear, zaya };
constexpr auto enum_names(RouterKind) {
  return names_in_order<RouterKind>("linear", "zaya");
}
enum class BalanceRule { none, adamw, sign };
constexpr auto enum_names(BalanceRule) {
  return names_in_order<BalanceRule>("none", "adamw", "sign");
}
enum class AuxScope { global, micro_batch, last_step };
constexpr auto enum_names(AuxScope) {
  return names_in_order<AuxScope>("global", "micro_batch", "last_step");
}
enum class RouterPrecision { f32, bf16 };
constexpr auto enum_names(RouterPrecision) {
  return names_in_order<RouterPrecision>("f32", "bf16");
}
enum class RouterInit { std, fan_in };
constexpr auto enum_names(RouterInit) {
  return names_in_order<RouterInit>("std", "fan_in");
}

struct MoeConfig {
  int64_t experts = 0;  ///< 0: dense
  int64_t top_k = 1;
  int64_t hidden = 0;         ///< width of one expert after the gate
  int64_t shared_hidden = 0;  ///< width of the shared expert; 0: none
  int64_t latent = 0;         ///< width of what experts read and write; 0: the model's
  int64_t first_dense = 0;    ///< layers at the start that keep the dense MLP
  RouterKind router = RouterKind::linear;
  RouteScore score = RouteScore::softmax_first;
  bool normalize = false;
  double scale = 1.0;
  int64_t groups = 1;
  int64_t groups_kept = 1;
  AssignRule selection = AssignRule::top_k;
  bool allow_future_tokens = false;
  double capacity_factor = 0;
  DropRule drop = DropRule::weight;
  bool pad_to_capacity = false;
  int64_t router_width = 256;
  bool skip_class = false;
  RouterInit router_init = RouterInit::std;
  RouterPrecision router_precision = RouterPrecision::f32;
  BalanceRule balance = BalanceRule::none;
  double balance_rate = 1e-3;
  double aux_coefficient = 0;
  AuxScope aux_scope = AuxScope::global;
  double sequence_aux_coefficient = 0;
  double z_coefficient = 0;

  /// A token's experts depend on later tokens, in evaluation too: losses are lower than a causal model's.
  bool sees_future_tokens() const { return experts > 0 && selection == AssignRule::expert_choice; }
  /// What a router chooses among: the experts and, with skip_class, one more.
  int64_t classes() const { return experts + (skip_class ? 1 : 0); }

  template <class Visitor>
  void visit(Visitor& v) {
    v("experts", experts, "routed experts per MoE layer; 0: dense model", up_to(bounds::kExperts));
    v("top_k", top_k, "experts per token", between(1, bounds::kExperts));
    v("hidden", hidden, "width of one expert (after the gate)", up_to(bounds::kHidden));
    v("shared_hidden", shared_hidden, "width of the shared expert on all tokens; 0: none",
      up_to(bounds::kHidden));
    v("latent", latent,
      "experts work in this width, between a shared down- and up-projection; 0: the model's width",
      up_to(bounds::kWidth));
    v("first_dense", first_dense, "layers at the start that keep the dense MLP", up_to(bounds::kLayers));
    v("router", router, "linear, or zaya: down-projection, depth averaging, three-layer MLP");
    v("score", score, "softmax before or after the choice of top_k, or sigmoid (DeepSeek-V3)");
    v("normalize", normalize, "divide the chosen weights by their sum");
    v("scale", scale, "factor on the chosen weights", positive(1e6));
    v("groups", groups, "groups of neighbouring experts, for groups_kept", between(1, bounds::kExperts));
    v("groups_kept", groups_kept, "a token's experts come from this many groups; equal to groups: no limit",
      between(1, bounds::kExperts));
    v("selection", selection,
      "who chooses: each token its top_k, the same after sinkhorn's balancing, or each expert its tokens "
      "(expert_choice)");
    v("allow_future_tokens", allow_future_tokens,
      "accept selection = expert_choice, under which a token's experts depend on later tokens and losses "
      "flatter");
    v("capacity_factor", capacity_factor,
      "an expert takes at most this times its even share of a micro-batch; 0: all", up_to(bounds::kExperts));
    v("drop", drop, "beyond the capacity are dropped: the smallest weights, or the last positions");
    v("pad_to_capacity", pad_to_capacity,
      "every expert computes exactly its capacity, so that no shape depends on routing");
    v("router_width", router_width, "width of zaya's router", between(1, bounds::kWidth));
    v("skip_class", skip_class, "zaya's pinned extra class in the softmax");
    v("router_init", router_init,
      "zaya router's initial std: init_std, or 1/sqrt(fan_in) (needed when small)");
    v("router_precision", router_precision,
      "bf16 runs: the router's products read the weights' masters and values in f32, or both rounded to "
      "bf16");
    v("balance", balance, "selection bias per expert: none, adamw (ZAYA1), sign (loss-free)");
    v("balance_rate", balance_rate, "step of the selection bias", up_to(1e6));
    v("aux_coefficient", aux_coefficient, "coefficient of the load-balance loss; 0: off", up_to(1e6));
    v("aux_scope", aux_scope,
      "whose load that loss evens out: that of all ranks in the step so far (global), of each micro_batch, "
      "or "
      "of the whole last_step");
    v("sequence_aux_coefficient", sequence_aux_coefficient,
      "coefficient of the load-balance loss within each document (DeepSeek-V3); 0: off", up_to(1e6));
    v("z_coefficient", z_coefficient, "coefficient of the router z-loss; 0: off", up_to(1e6));
  }
};

/// What a valid MoE section is, in a model of that many layers; keys are reported as "moe.KEY".
void validate_moe(const MoeConfig& moe, int64_t layers, ConfigErrors& errors);

}  // namespace ingot
