// See paper_ranks.h.
#include "support/paper_ranks.h"

#include <gtest/gtest.h>

#include <numeric>

#include "parallel/axis_types.h"

namespace ingot::test {
namespace {

constexpr int64_t kSequences = 2, kLength = 24;

GroupMaker maker(RecordingWorld& world) {
  return [&world](std::string name, const std::vector<int>& members) {
    return world.group(std::move(name), members);
  };
}

/// The collectives that each rank of a group calls, in order.
using Calls = std::map<std::pair<std::string, std::vector<int>>, std::map<int, std::vector<std::string>>>;

PipelineLayout stages_of(const PaperLayout& l, const ModelConfig& m) {
  PipelineLayout p = even_pipeline_layout(l.grid.pp, l.chunks, m.layers, m.mtp.modules());
  if (!l.loss_alone) return p;
  StageParts &last = p.stages.back(), &before = p.stages[p.stages.size() - 2];
  before.layers += last.layers, before.modules = last.modules;
  last = {.first_layer = m.layers, .first_module = m.mtp.modules(), .loss = true};
  return p;
}

void list_calls(PaperStage& s, int rank, Calls& calls) {
  for (const Node& node : s.tape.nodes()) {
    const AxisRule* rule = axis_rule(*node.op);
    const Communicator* group = rule->group != nullptr ? rule->group(node.attr.data()) : nullptr;
    if (group == nullptr) continue;
    calls[{group->name(), RecordingWorld::members(*group)}][rank].push_back(
        fmt::format("{} {}", node.op->name, Value(&s.tape, node.inputs[0]).meta().str()));
  }
}

void expect_alike(const Calls& calls) {
  for (const auto& [group, by_rank] : calls) {
    ASSERT_EQ(by_rank.size(), group.second.size()) << "not all ranks of group '" << group.first << "' ask it";
    for (const auto& [rank, list] : by_rank)
      EXPECT_EQ(list, by_rank.begin()->second) << "rank " << rank << " of '" << group.first << "'";
  }
}

}  // namespace

std::vector<PaperLayout> paper_layouts() {
  using enum ContextForm;
  using enum DispatchKind;
  const RankOptions sequence{.sequence_parallel = true};
  const auto form = [](ContextForm f, bool seq = false) {
    return RankOptions{.sequence_parallel = seq, .context = f};
  };
  const auto mixed = [](ContextForm f, bool seq = false) {
    return RankOptions{.sequence_parallel = seq, .context = f, .context_inner = 2};
  };
  const auto by = [](DispatchKind d, bool seq = false) {
    return RankOptions{.sequence_parallel = seq, .dispatch = d, .node_ranks = 2};
  };
  const auto shards = [](ShardLevel level, int ranks, bool seq = false) {
    return RankOptions{.sequence_parallel = seq,
                       .shards = {.level = level, .ranks = ranks, .buckets = FlatBuckets::layer_group}};
  };
  return {
      {"dp2", {.dp = 2}},
      {"tp2", {.tp = 2}},
      {"tp2_sequence", {.tp = 2}, sequence},
      {"cp2_heads", {.cp = 2}, form(heads)},
      {"cp2_gather", {.cp = 2}, form(gather)},
      {"cp2_ring", {.cp = 2}, form(ring)},
      {"cp4_ring_inner2", {.cp = 4}, mixed(ring)},
      {"dp2_cp4_tp2_sequence_gather_inner2", {.dp = 2, .cp = 4, .tp = 2}, mixed(gather, true)},
      {"ep2", {.dp = 2, .ep = 2}},
      {"ep2_gather", {.dp = 2, .ep = 2}, by(all_gather)},
      {"ep4_nodes2", {.dp = 4, .ep = 4}, by(hierarchical)},
      {"dp4_ep2", {.dp = 4, .ep = 2}},
      {"dp2_tp2_ep2", {.dp = 2, .tp = 2, .ep = 2}},
      {"dp2_tp2_sequence_ep4", {.dp = 2, .tp = 2, .ep = 4, .etp = 1}, sequence},
      {"dp2_tp2_sequence_ep4_gather", {.dp = 2, .tp = 2, .ep = 4, .etp = 1}, by(all_gather, true)},
      {"dp2_tp2_sequence_ep4_nodes2", {.dp = 2, .tp = 2, .ep = 4, .etp = 1}, by(hierarchical, true)},
      {"dp4_tp2_sequence_ep2", {.dp = 4, .tp = 2, .ep = 2, .etp = 1}, sequence},
      {"dp2_tp2_sequence_ep1", {.dp = 2, .tp = 2, .ep = 1, .etp = 1}, sequence},
      {"dp2_etp2", {.dp = 2, .etp = 2}},
      {"tp2_sequence_etp2", {.tp = 2, .etp = 2}, sequence},
      {"dp4_ep2_etp2", {.dp = 4, .ep = 2, .etp = 2}},
      {"dp4_ep2_etp2_gather", {.dp = 4, .ep = 2, .etp = 2}, by(all_gather)},
      {"dp4_ep2_etp2_nodes2", {.dp = 4, .ep = 2, .etp = 2}, by(hierarchical)},
      {"dp2_cp2_ep4", {.dp = 2, .cp = 2, .ep = 4}},
      {"dp2_cp2_tp2_ring", {.dp = 2, .cp = 2, .tp = 2}, form(ring)},
      {"cp2_tp2_heads_sequence", {.cp = 2, .tp = 2}, form(heads, true)},
      {"dp2_cp2_tp2_sequence_ep4_etp2_ring",
       {.dp = 2, .cp = 2, .tp = 2, .ep = 4, .etp = 2},
       form(ring, true)},
      {"dp2_cp3_tp2_sequence_ep4_ring",
       {.dp = 2, .cp = 3, .tp = 2, .ep = 4, .etp = 1},
       form(ring, true)},  // views across each other
      {"pp2", {.pp = 2}},
      {"pp2_chunks2", {.pp = 2}, {}, 2},
      {"pp4", {.pp = 4}},
      {"pp2_loss_alone", {.pp = 2}, {}, 1, true},
      {"pp2_dp2_tp2", {.pp = 2, .dp = 2, .tp = 2}},
      {"pp2_tp2_sequence_chunks2_loss_alone", {.pp = 2, .tp = 2}, sequence, 2, true},
      {"pp2_cp2_tp2_sequence_gather", {.pp = 2, .cp = 2, .tp = 2}, form(gather, true)},
      {"pp2_dp2_ep2", {.pp = 2, .dp = 2, .ep = 2}},
      {"pp2_dp2_tp2_sequence_ep4_nodes2",
       {.pp = 2, .dp = 2, .tp = 2, .ep = 4, .etp = 1},
       by(hierarchical, true)},
      {"dp4_zero", {.dp = 4}, shards(ShardLevel::optimizer, 0)},
      {"dp4_zero_copies2", {.dp = 4}, shards(ShardLevel::optimizer, 2)},
      {"dp4_ep2_zero_copies2", {.dp = 4, .ep = 2}, shards(ShardLevel::optimizer, 2)},
      {"dp2_tp2_sequence_ep4_zero",
       {.dp = 2, .tp = 2, .ep = 4, .etp = 1},
       shards(ShardLevel::optimizer, 0, true)},
      {"pp2_dp2_full", {.pp = 2, .dp = 2}, shards(ShardLevel::full, 0)},
      {"pp2_dp4_tp2_sequence_chunks2_full_copies2",
       {.pp = 2, .dp = 4, .tp = 2},
       shards(ShardLevel::full, 2, true),
       2},
      {"dp4_tp2_sequence_full_copies2", {.dp = 4, .tp = 2}, shards(ShardLevel::full, 2, true)},
  };
}

bool cuts_documents(const PaperLayout& l) {
  return l.options.sequence_parallel || l.grid.cp > 1;
}

bool fits(const ModelConfig& m, const PaperLayout& l) {
  const GridShape& g = l.grid;
  const Grid grid(g);
  const int tp = g.tp, cp = l.options.context == ContextForm::heads ? g.cp : l.options.context_inner,
            etp = grid.size(GridAxis::etp);
  const bool widths = l.options.sequence_parallel || tp == 1;  // of experts are cut
  if (m.heads % (tp * cp) != 0 || m.kv_heads % (tp * cp) != 0 || m.mlp_hidden() % tp != 0) return false;
  if (m.layers < g.pp * l.chunks) return false;
  if (m.moe.experts == 0) return g.ep == 1 && etp == tp;
  return m.moe.experts % g.ep == 0 && m.moe.shared_hidden % tp == 0 && (!widths || m.moe.hidden % etp == 0);
}

PaperRank::PaperRank(const ParameterTable& table, const PipelineLayout& stages, const PaperLayout& l,
                     int rank)
    : world(rank, Grid(l.grid).ranks()),
      groups(Grid(l.grid), rank, maker(world), l.options),
      pipe(Grid(l.grid), rank, maker(world), stages, table) {}

PaperTape::PaperTape(const ParameterTable& table, const PaperRank& rank)
    : positions(static_cast<size_t>(kSequences * kLength)),
      weights(table, rank.placement(), Precision::bf16(), Backing::nothing),
      sink(table, rank.placement(), DType::f32, Backing::nothing),
      tape(arena, {.device = DeviceKind::null, .sink = &sink}),
      c{tape, weights, &whole} {
  for (int64_t s = 0; s < kSequences; ++s, whole.count += kLength) {
    whole.spans.push_back({whole.count, kLength});
    std::iota(positions.begin() + whole.count, positions.begin() + whole.count + kLength, 0);
  }
  if (const Communicator& context = rank.groups.context(); context.size() > 1)
    c.context_rows = &chunks.emplace(whole, kLength, positions.data(), context.rank(), context.size(),
                                     rank.groups.context_inner().size());
  rank.groups.join(c);
  c.positions_T = leaf({rows()}, DType::i32);
}

Value PaperTape::leaf(const Shape& shape, DType type, bool requires_grad) {
  return tape.leaf({nullptr, shape, type, DeviceKind::null}, requires_grad);
}

PaperStage::PaperStage(const Decoder& decoder, const PaperRank& rank, int stage,
                       const std::vector<ValueTypes>& received)
    : PaperTape(decoder.table(), rank) {
  const StageParts& parts = rank.pipe.layout().stages[static_cast<size_t>(stage)];
  const MoeConfig& moe = decoder.config().moe;
  for (const int64_t layer : decoder.moe_layers()) {
    const Tensor per_expert{nullptr, {moe.experts}, DType::f32, DeviceKind::null};
    c.routers[layer].bias_E = per_expert;
    if (moe.aux_scope == AuxScope::last_step) c.routers[layer].load_E = per_expert;
  }
  std::vector<Value> leaves;
  std::map<int32_t, ValueTypes> types_of_leaves;
  if (!parts.embedding) {
    const int64_t own = rows() / (c.sequence_parallel ? c.tensor->size() : 1);
    const StageBoundaries& boundaries = decoder.boundaries(c.precision(), decoder.config().mtp.depths);
    for (const TensorMeta& m : boundaries.at(position_before(parts)).metas(own)) {
      leaves.push_back(leaf(m.shape, m.dtype, true));
      types_of_leaves[leaves.back().id()] = received.at(leaves.size() - 1);
    }
  }
  const Tensor ids{nullptr, {rows()}, DType::i32, DeviceKind::null};
  StageForward forward(decoder, parts, c, tape.leaf(ids), leaves);
  for (int64_t depth = 0; depth <= forward.depths(); ++depth) {
    const Value hidden_TD = forward.head_input(depth, ids);
    if (!parts.loss) continue;
    const HeadResult h = decoder.head(c, {.mode = HeadMode::store}, hidden_TD, tape.leaf(ids));
    losses_.push_back(h.logprob_T), losses_.push_back(h.lse_T);
  }
  for (const BalanceLosses& b : forward.balance_losses())
    for (const Value& loss : {b.aux, b.z, b.sequence})
      if (loss.defined()) losses_.push_back(loss);
  types = axis_types(c, rank.groups, types_of_leaves);
  for (const Value& loss : losses_)
    for (const AxisType t : types.values.at(loss.id()).types)
      EXPECT_TRUE(t == AxisType::replicate || t == AxisType::rows) << "a loss is " << name_of(t);
  if (parts.loss) return;
  for (const Value& v : forward.live_values()) sent.push_back(types.values.at(v.id()));
}

void reduce_as_training_does(const ParameterTable& table, PaperRank& rank, GradientBuffer& gradients) {
  GradientReducer reducer(rank.groups, table, gradients, &rank.pipe);
  reducer.begin_step(1);
  for (int p = 0; p < table.size(); ++p)
    if (gradients.gradient(p).numel() > 0)
      for (int chunk = 0; chunk < rank.pipe.chunks_with(table[p]); ++chunk) gradients.finished(p);
  reducer.end_micro_batch();
  reducer.finish();
}

void check_on_paper(const Decoder& decoder, const PaperLayout& l, const PaperReduce& reduce,
                    const std::function<void(PaperStage&)>& seen) {
  const Axes axes(Grid(l.grid), l.options);
  const ParameterTable& table = decoder.table();
  const ModelConfig& m = decoder.config();
  const PipelineLayout stages = stages_of(l, m);
  std::vector<std::unique_ptr<PaperRank>> ranks;
  for (int r = 0; r < axes.grid().ranks(); ++r)
    ranks.push_back(std::make_unique<PaperRank>(table, stages, l, r));
  std::vector<RankGradients> gradients(ranks.size());
  std::vector<std::vector<ValueTypes>> border(static_cast<size_t>(axes.stage_ranks()));
  for (int stage = 0; stage < l.grid.pp * l.chunks; ++stage) {
    Calls calls;
    for (size_t i = 0; i < border.size(); ++i) {
      const auto r = static_cast<size_t>(axes.in_stage(static_cast<int>(i), stage % l.grid.pp));
      PaperStage s(decoder, *ranks[r], stage, border[i]);
      border[i] = s.sent;
      list_calls(s, static_cast<int>(r), calls);
      if (seen) seen(s);
      for (const auto& [p, types] : s.types.gradients)
        EXPECT_TRUE(gradients[r].types.try_emplace(p, types).first->second == types) << table[p].name;
    }
    expect_alike(calls);
  }
  for (size_t r = 0; r < ranks.size(); ++r)
    gradients[r].sums = recorded_sums(ranks[r]->world, table, ranks[r]->placement(), [&](GradientBuffer& g) {
      reduce ? reduce(*ranks[r], g) : reduce_as_training_does(table, *ranks[r], g);
    });
  check_gradient_sums(axes, table, gradients);
}

}  // namespace ingot::test
