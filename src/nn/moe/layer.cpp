// See layer.h.
#include "nn/moe/layer.h"

#include <algorithm>

#include "nn/moe/dispatcher.h"
#include "nn/projection.h"
#include "ops/add/add.h"
#include "ops/assign/assign.h"
#include "ops/capacity/capacity.h"
#include "ops/collective/collective.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/sequence_balance/sequence_balance.h"

namespace ingot {
namespace {

void refuse_cached_sequences(const Context& c) {
  if (c.rows == nullptr) return;
  for (const SequenceSpan& s : c.rows->spans)
    if (s.state != nullptr)
      throw Error(
          "a model with moe.selection = expert_choice cannot generate: an expert's choice among all tokens "
          "of a batch "
          "depends on tokens that are not there yet",
          "train with moe.selection = top_k or sinkhorn to generate; validation losses can be computed");
}

void refuse_cut_documents(const Context& c) {
  const bool tensor = c.sequence_parallel && c.tensor != nullptr && c.tensor->size() > 1;
  if (tensor || c.context_rows != nullptr)
    throw Error(fmt::format("the balance loss within documents (moe.sequence_aux_coefficient) needs whole "
                            "documents, which {} "
                            "parallelism cuts",
                            tensor ? "sequence" : "context"),
                "set it to 0, or leave that parallelism off");
}

/// The groups whose tokens the balance loss counts together: all ranks of the step, or those whose routers
/// see other rows of the same micro-batch (sequence and context parallelism).
std::vector<Communicator*> counted_together(const Context& c, AuxScope scope) {
  std::vector<Communicator*> groups;
  const auto add = [&](Communicator* g) {
    if (g != nullptr && g->size() > 1) groups.push_back(g);
  };
  if (scope == AuxScope::global) {
    add(c.tokens);
  } else {
    add(c.sequence_parallel ? c.tensor : nullptr);
    add(c.context);
  }
  return groups;
}

}  // namespace

MoeLayer::MoeLayer(ParameterTable& table, const std::string& prefix, const ModelConfig& model, int64_t layer)
    : config_(model.moe),
      kind_(model.mlp),
      route_{.score = config_.score,
             .normalize = config_.normalize,
             .experts = static_cast<int32_t>(config_.experts),
             .skip_classes = config_.skip_class ? 1 : 0,
             .k = static_cast<int32_t>(config_.top_k),
             .scale = config_.scale,
             .groups = static_cast<int32_t>(config_.groups),
             .groups_kept = static_cast<int32_t>(config_.groups_kept)},
      router_(table, prefix + ".router", model, layer == config_.first_dense || layer >= model.layers) {
  const int64_t width = model.width, hidden = config_.hidden, experts = config_.experts;
  const int64_t rows = is_gated(kind_) ? 2 * hidden : hidden;
  const int64_t inner = config_.latent > 0 ? config_.latent : width;
  const double in = model.init_std, out = model.output_std();
  if (config_.latent > 0) {
    latent_down_ =
        table.add({prefix + ".latent_down.weight", {inner, width}, ParamRole::matrix, Init::normal(in)});
    latent_up_ =
        table.add({prefix + ".latent_up.weight", {width, inner}, ParamRole::matrix, Init::normal(out)});
  }
  const auto add = [&](const char* name, const Shape& shape, double std, ShardRule sharding) {
    ParameterSpec spec{prefix + name, shape, ParamRole::expert,     Init::normal(std),
                       experts,       {},    {ShardAxis::expert, 0}};
    spec.width_shard = std::move(sharding);
    return table.add(std::move(spec));
  };
  gate_up_ =
      add(".experts.gate_up.weight", {experts, rows, inner}, in,
          {ShardAxis::expert_tensor, 1, std::vector<int64_t>(static_cast<size_t>(rows / hidden), hidden)});
  down_ = add(".experts.down.weight", {experts, inner, hidden}, out, {ShardAxis::expert_tensor, 2});
  if (config_.shared_hidden > 0)
    shared_.emplace(table, prefix + ".shared", model, config_.shared_hidden, false);
}

RouteResult MoeLayer::choose(Context& c, const Value& logits_TE, const RouterInputs& inputs,
                             int layer) const {
  RouteAttr attr = route_;
  const bool training = c.tape.options().record;
  const bool expert_choice = config_.selection == AssignRule::expert_choice;
  Value ids_TK = inputs.forced_ids_TK.defined() ? c.tape.unplanned_leaf(inputs.forced_ids_TK) : Value();
  if (expert_choice) refuse_cached_sequences(c);
  if (!ids_TK.defined() && (expert_choice || (config_.selection == AssignRule::sinkhorn && training)))
    ids_TK = assign(c.tape,
                    {config_.selection, attr.score == RouteScore::sigmoid, attr.k,
                     expert_choice ? config_.capacity_factor : 1.0},
                    logits_TE);
  if (expert_choice) attr.k = attr.experts;
  const Value bias = c.leaf_or_absent(inputs.bias);
  Value load_E = c.leaf_or_absent(inputs.load_E), earlier_E1;
  const bool counts_own = config_.aux_coefficient != 0 && training && !load_E.defined();
  if (counts_own) {
    attr.load_tokens = logits_TE.dim(0);
    const std::vector<Communicator*> groups = counted_together(c, config_.aux_scope);
    if (!groups.empty()) {
      const RouteResult mine = route(c.tape, attr, logits_TE, bias, {}, ids_TK);
      load_E = mine.counts_E, ids_TK = mine.ids_TK;
    }
    for (Communicator* g : groups) {
      load_E = reduce_from_axis(c.tape, g, load_E);
      attr.load_tokens *= g->size();
    }
    earlier_E1 = c.leaf_or_absent(inputs.earlier_E1);
  }
  RouteResult chosen = route(c.tape, attr, logits_TE, bias, load_E, ids_TK, earlier_E1);
  if (counts_own)
    c.tape.metric("router_counts_of_all", layer, Reduce::sum, load_E.defined() ? load_E : chosen.counts_E);
  c.tape.metric("router_counts", layer, Reduce::sum, chosen.counts_E);
  c.tape.metric("router_entropy", layer, Reduce::mean, chosen.entropy);
  c.tape.metric("router_aux_loss", layer, Reduce::mean, chosen.aux_loss);
  c.tape.metric("router_z_loss", layer, Reduce::mean, chosen.z_loss);
  c.tape.metric("router_ids", layer, Reduce::sum, chosen.ids_TK);
  if (expert_choice || row_bound(c, logits_TE.dim(0)) == 0) return chosen;
  CapacityResult kept =
      capacity(c.tape, {attr.experts, config_.capacity_factor, config_.drop}, chosen.probs_TK, chosen.ids_TK);
  c.tape.metric("router_dropped", layer, Reduce::sum, kept.dropped);
  chosen.probs_TK = std::move(kept.probs_TK);
  chosen.ids_TK = std::move(kept.ids_TK);
  return chosen;
}

int64_t MoeLayer::row_bound(const Context& c, int64_t tokens) const {
  const bool expert_choice = config_.selection == AssignRule::expert_choice;
  if (config_.capacity_factor == 0 || (!expert_choice && !c.tape.options().record)) return 0;
  return std::min(tokens, expert_capacity(tokens, config_.top_k, config_.experts, config_.capacity_factor));
}

MoeOutput MoeLayer::forward(Context& c, const Value& h_TD, const Value& router_state_below_TR,
                            int64_t layer) const {
  const int l = static_cast<int>(layer);
  const DType type = c.precision().compute;
  RouterOutput r = router_.forward(c, h_TD, router_state_below_TR, l);
  const RouteResult chosen =
      choose(c, r.logits_TE, c.routers.count(layer) ? c.routers.at(layer) : RouterInputs{}, l);
  BalanceLosses losses{chosen.aux_loss, chosen.z_loss, {}};
  if (config_.sequence_aux_coefficient != 0) {
    refuse_cut_documents(c);
    const RouteAttr scores{
        .score = route_.score, .experts = route_.experts, .skip_classes = route_.skip_classes, .k = route_.k};
    losses.sequence = sequence_balance(c.tape, {scores, c.rows}, r.logits_TE, c.documents);
    c.tape.metric("router_sequence_loss", l, Reduce::mean, losses.sequence);
  }
  Value shared_TD;
  const auto shared = [&] {
    c.tape.begin_segment("shared", l);
    shared_TD = shared_->forward(c, h_TD);
  };
  const bool is_sent = c.expert != nullptr && c.expert->size() > 1;
  const std::function<void()> meanwhile = shared_ && is_sent ? shared : std::function<void()>();
  Value y_TD = config_.latent > 0 ? experts(c, project(c, h_TD, latent_down_), chosen, l, meanwhile)
                                  : experts(c, h_TD, chosen, l, meanwhile);
  if (config_.latent > 0) y_TD = project(c, y_TD, latent_up_);
  if (shared_) {
    if (!is_sent) shared();
    y_TD = add(c.tape, type, y_TD, shared_TD);
  }
  return {std::move(y_TD), std::move(r.state_TR), std::move(losses)};
}

/// `meanwhile` is done while tokens are on their way to their experts.
Value MoeLayer::experts(Context& c, const Value& h_TD, const RouteResult& chosen, int layer,
                        const std::function<void()>& meanwhile) const {
  const DType type = c.precision().compute;
  const int64_t bound = row_bound(c, h_TD.dim(0));
  const auto dispatcher = make_dispatcher(c,
                                          {.experts = config_.experts,
                                           .tokens = h_TD.dim(0),
                                           .top_k = chosen.ids_TK.dim(1),
                                           .groups = config_.groups,
                                           .groups_kept = config_.groups_kept,
                                           .bound = bound},
                                          config_.pad_to_capacity && bound > 0);
  c.tape.begin_segment("dispatch", layer);
  const Tokens arrived =
      dispatcher->dispatch(c, dispatcher->prepare_dispatch(c, {h_TD, chosen.probs_TK, chosen.ids_TK}));
  if (meanwhile) {
    meanwhile();
    c.tape.begin_segment("dispatch", layer);
  }
  const Permutation p = dispatcher->finish_dispatch(c, arrived);
  for (const Value& dropped : dispatcher->dropped())
    if (dropped.defined()) c.tape.metric("router_dropped", layer, Reduce::sum, dropped);
  c.tape.begin_segment("experts", layer);
  const double expected = dispatcher->expected_rows();
  Value up_RF = grouped_linear(c.tape, type, p.rows_RD, c.param(gate_up_), p.offsets, expected);
  Value act_RF =
      activation(c.tape, {.kind = kind_, .out = type, .expected = expected}, up_RF, p.p_R, p.offsets);
  Value out_RD = grouped_linear(c.tape, type, act_RF, c.param(down_), p.offsets, expected);
  c.tape.begin_segment("combine", layer);
  return dispatcher->finish_combine(c, dispatcher->combine(c, dispatcher->prepare_combine(c, out_RD, p)));
}

}  // namespace ingot
