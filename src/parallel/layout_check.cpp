// See layout_check.h.
#include "parallel/layout_check.h"

#include <map>
#include <numeric>

#include "base/round.h"
#include "parallel/gradient_reducer.h"

namespace ingot {
namespace {

constexpr int64_t kSequences = 2, kLeastLength = 24;
/// Grids of more ranks are not checked: the time grows with them.
constexpr int kMostRanks = 256;

GroupMaker maker(RecordingWorld& world) {
  return [&world](std::string name, const std::vector<int>& members) {
    return world.group(std::move(name), members);
  };
}

/// Tokens of a sequence that context ranks divide into chunks and tensor ranks into rows.
int64_t sequence_length(const Grid& grid) {
  const int64_t unit = int64_t{2} * grid.size(GridAxis::cp) * grid.size(GridAxis::tp);
  return round_up(kLeastLength, unit);
}

/// What each rank of a group (name, members) asks of it, in order.
using Calls = std::map<std::pair<std::string, std::vector<int>>, std::map<int, std::vector<std::string>>>;

void list_calls(const DryRunStage& s, int rank, Calls& calls) {
  for (const Node& node : s.tape.nodes()) {
    const AxisRule& rule = node.op->axis_rule;
    const Communicator* group = rule.group != nullptr ? rule.group(node.attr.data()) : nullptr;
    if (group == nullptr) continue;
    const TensorMeta meta = Value(const_cast<Tape*>(&s.tape), node.inputs[0]).meta();
    calls[{group->name(), RecordingWorld::members(*group)}][rank].push_back(
        fmt::format("{} {}", node.op->name, meta.str()));
  }
}

void require_same_calls(const Calls& calls) {
  for (const auto& [group, by_rank] : calls) {
    const auto& [first, expected] = *by_rank.begin();
    for (const int rank : group.second) {
      const auto found = by_rank.find(rank);
      const std::vector<std::string> none, &list = found != by_rank.end() ? found->second : none;
      if (list == expected) continue;
      size_t i = 0;
      while (i < list.size() && i < expected.size() && list[i] == expected[i]) ++i;
      const auto call = [&](const std::vector<std::string>& l) { return i < l.size() ? l[i] : "nothing"; };
      fail(
          "the ranks of group '{}' would wait for each other: its collective number {} is {} on rank {}, {} "
          "on rank {}",
          group.first, i + 1, call(expected), first, call(list), rank);
    }
  }
}

}  // namespace

DryRunRank::DryRunRank(const ParameterTable& table, const DryRunLayout& l, int rank)
    : world(rank, l.grid.ranks()),
      groups(l.grid, rank, maker(world), l.options),
      pipe(l.grid, rank, maker(world), l.stages, table) {}

DryRunTape::DryRunTape(const ParameterTable& table, const DryRunRank& rank)
    : weights(table, rank.placement(), Precision::bf16(), Backing::nothing),
      sink(table, rank.placement(), DType::f32, Backing::nothing),
      tape(arena, {.device = DeviceKind::null, .sink = &sink}),
      c{tape, weights, &whole} {
  const int64_t length = sequence_length(rank.groups.grid());
  positions.resize(static_cast<size_t>(kSequences * length));
  for (int64_t s = 0; s < kSequences; ++s, whole.count += length) {
    whole.spans.push_back({whole.count, length});
    std::iota(positions.begin() + whole.count, positions.begin() + whole.count + length, 0);
  }
  if (const Communicator& context = rank.groups.context(); context.size() > 1)
    c.context_rows = &chunks.emplace(whole, length, positions.data(), context.rank(), context.size(),
                                     rank.groups.context_inner().size());
  rank.groups.join(c);
  c.positions_T = leaf({rows()}, DType::i32);
}

Value DryRunTape::leaf(const Shape& shape, DType type, bool requires_grad) {
  return tape.leaf({nullptr, shape, type, DeviceKind::null}, requires_grad);
}

DryRunStage::DryRunStage(const Decoder& decoder, const DryRunRank& rank, int stage,
                         const std::vector<ValueTypes>& received)
    : DryRunTape(decoder.table(), rank) {
  const StageParts& parts = rank.pipe.layout().stages[static_cast<size_t>(stage)];
  const MoeConfig& moe = decoder.config().moe;
  for (const int64_t layer : decoder.moe_layers()) {
    const Tensor per_expert{nullptr, {moe.experts}, DType::f32, DeviceKind::null};
    c.routers[layer].bias = per_expert;
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
  std::vector<Value> losses;
  for (int64_t depth = 0; depth <= forward.depths(); ++depth) {
    const Value hidden_TD = forward.head_input(depth, ids);
    if (!parts.loss) continue;
    const HeadResult h = decoder.head(c, {.mode = HeadMode::store}, hidden_TD, tape.leaf(ids));
    losses.push_back(h.logprob_T), losses.push_back(h.lse_T);
  }
  for (const BalanceLosses& b : forward.balance_losses())
    for (const Value& loss : {b.aux, b.z, b.sequence})
      if (loss.defined()) losses.push_back(loss);
  types = axis_types(c, rank.groups, types_of_leaves);
  for (const Value& loss : losses)
    for (const AxisType t : types.values.at(loss.id()).types)
      if (t != AxisType::replicate && t != AxisType::rows)
        fail("a loss of this rank's rows is {}", name_of(t));
  if (parts.loss) return;
  for (const Value& v : forward.live_values()) sent.push_back(types.values.at(v.id()));
}

void reduce_as_training_does(const ParameterTable& table, DryRunRank& rank, GradientBuffer& gradients) {
  GradientReducer reducer(rank.groups, table, gradients, &rank.pipe);
  reducer.begin_step(1);
  for (int p = 0; p < table.size(); ++p)
    if (gradients.gradient(p).numel() > 0)
      for (int chunk = 0; chunk < rank.pipe.chunks_with(table[p]); ++chunk) gradients.finished(p);
  reducer.end_micro_batch();
  reducer.finish();
}

std::string check_layout(const Decoder& decoder, const DryRunLayout& l, const LayoutCheckHooks& hooks) {
  if (l.grid.ranks() > kMostRanks)
    return fmt::format("collectives and sums of gradients: {} ranks, at most {} are checked", l.grid.ranks(),
                       kMostRanks);
  const Axes axes(l.grid, l.options);
  const ParameterTable& table = decoder.table();
  std::vector<std::unique_ptr<DryRunRank>> ranks;
  for (int r = 0; r < l.grid.ranks(); ++r) ranks.push_back(std::make_unique<DryRunRank>(table, l, r));
  std::vector<RankGradients> gradients(ranks.size());
  std::vector<std::vector<ValueTypes>> boundary(static_cast<size_t>(axes.stage_ranks()));
  for (size_t stage = 0; stage < l.stages.stages.size(); ++stage) {
    Calls calls;
    for (size_t i = 0; i < boundary.size(); ++i) {
      const int pipeline_rank = static_cast<int>(stage) % l.grid.size(GridAxis::pp);
      const auto r = static_cast<size_t>(axes.in_stage(static_cast<int>(i), pipeline_rank));
      DryRunStage s(decoder, *ranks[r], static_cast<int>(stage), boundary[i]);
      boundary[i] = s.sent;
      list_calls(s, static_cast<int>(r), calls);
      if (hooks.recorded) hooks.recorded(s);
      for (const auto& [p, types] : s.types.gradients)
        if (gradients[r].types.try_emplace(p, types).first->second != types)
          fail("the gradient of '{}' is {} in one stage of rank {}, {} in another", table[p].name,
               types.str(axes, static_cast<int>(r)), r,
               gradients[r].types.at(p).str(axes, static_cast<int>(r)));
    }
    require_same_calls(calls);
  }
  if (l.options.shards.level == ShardLevel::full && !hooks.sums_in_memory)
    return "sums of gradients: under full sharding they would take the memory of the run";
  for (size_t r = 0; r < ranks.size(); ++r)
    gradients[r].sums = recorded_sums(ranks[r]->world, table, ranks[r]->placement(), [&](GradientBuffer& g) {
      hooks.reduce ? hooks.reduce(*ranks[r], g) : reduce_as_training_does(table, *ranks[r], g);
    });
  check_gradient_sums(axes, table, gradients);
  return {};
}

}  // namespace ingot
