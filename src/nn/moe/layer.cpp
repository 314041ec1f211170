// See layer.h.
#include "nn/moe/layer.h"

#include "nn/moe/dispatcher.h"
#include "ops/add/add.h"
#include "ops/grouped_linear/grouped_linear.h"

namespace ingot {

MoeLayer::MoeLayer(ParameterTable& table, const std::string& prefix, const MoeOptions& o)
    : o_(o), router_(table, prefix + ".router", o.router) {
  const int64_t rows = is_gated(o.kind) ? 2 * o.hidden : o.hidden;
  gate_up_ = table.add({prefix + ".experts.gate_up.weight", {o.experts, rows, o.width}, ParamRole::expert,
                        Init::normal(o.init_std), o.experts, {}, {ShardAxis::expert, 0, {}}});
  down_ = table.add({prefix + ".experts.down.weight", {o.experts, o.width, o.hidden}, ParamRole::expert,
                     Init::normal(o.out_std), o.experts, {}, {ShardAxis::expert, 0, {}}});
  if (o.shared_hidden > 0)
    shared_.emplace(table, prefix + ".shared",
                    MlpOptions{o.width, o.shared_hidden, o.kind, false, o.init_std, o.out_std});
}

MoeOutput MoeLayer::forward(Context& c, const Value& h_TD, const Value& router_state_below_TR, int64_t layer) const {
  const int l = static_cast<int>(layer);
  c.tape.begin_segment("route", l);
  RouterOutput r = router_.forward(c, h_TD, router_state_below_TR);
  const RouterInputs inputs = c.routers.count(layer) ? c.routers.at(layer) : RouterInputs{};
  const RouteResult chosen = route(c.tape, o_.route, r.logits_TE, c.leaf_or_absent(inputs.bias_E),
                                   c.leaf_or_absent(inputs.load_E), c.leaf_or_absent(inputs.forced_ids_TK));
  c.tape.metric("router_counts", l, Reduce::sum, chosen.counts_E);
  c.tape.metric("router_entropy", l, Reduce::mean, chosen.entropy);
  c.tape.metric("router_aux_loss", l, Reduce::mean, chosen.aux_loss);
  c.tape.metric("router_z_loss", l, Reduce::mean, chosen.z_loss);
  c.tape.metric("router_ids", l, Reduce::sum, chosen.ids_TK);
  Value y_TD = experts(c, h_TD, chosen, l);
  if (shared_) {
    c.tape.begin_segment("shared", l);
    y_TD = add(c.tape, c.precision().compute, y_TD, shared_->forward(c, h_TD));
  }
  return {std::move(y_TD), std::move(r.state_TR), {chosen.aux_loss, chosen.z_loss}};
}

Value MoeLayer::experts(Context& c, const Value& h_TD, const RouteResult& chosen, int layer) const {
  const DType type = c.precision().compute;
  const Dispatcher dispatcher(c, o_.experts);
  c.tape.begin_segment("dispatch", layer);
  const Arrived arrived = dispatcher.move(c, {h_TD, chosen.probs_TK, chosen.ids_TK});
  const Permutation p = dispatcher.finish(c, arrived);
  c.tape.begin_segment("experts", layer);
  Value up_RF = grouped_linear(c.tape, type, p.rows_RD, c.param(gate_up_), p.offsets);
  Value act_RF = activation(c.tape, {o_.kind, type}, up_RF, p.p_R);
  Value out_RD = grouped_linear(c.tape, type, act_RF, c.param(down_), p.offsets);
  c.tape.begin_segment("combine", layer);
  return dispatcher.move_back(c, dispatcher.prepare_back(c, out_RD, p));
}

}  // namespace ingot
