// See pipeline_parity.h.
#include "support/pipeline_parity.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ingot::test {
namespace {

PipelineLayout layout_of(const PipelineCase& c, const ModelConfig& m) {
  if (c.layout.empty()) return even_pipeline_layout(c.grid.pp, c.chunks, m.layers, m.mtp.modules());
  return parse_pipeline_layout(c.layout, c.grid.pp, m.layers, m.mtp.modules());
}

/// The sum of squares of the model's gradient: of each parameter with its owner.
double square_sum(const RankGroups& groups, const PipelineGroups& pipe, const ParameterTable& table,
                  const GradientBuffer& gradients) {
  double copies = 0;
  Array cut{0};  // of copies that tensor ranks have in parts
  for (int i = 0; i < table.size(); ++i)
    if (!pipe.owns(table[i]))
      for (const double g : reference::load(gradients.gradient(i)))
        (table[i].shard.axis == ShardAxis::tensor ? cut[0] : copies) += g * g;
  all_reduce(groups.tensor(), cut);
  Array sum{gradient_square_sum(groups, table, gradients) - copies - cut[0]};
  all_reduce(pipe.forward(), sum);
  return sum[0];
}

}  // namespace

void expect_pipeline_equals_one_rank(const PipelineCase& c, const OneRank& one, World& world) {
  const Grid grid(c.grid);
  const GroupMaker make = [&](std::string name, const std::vector<int>& members) {
    return world.group(std::move(name), members);
  };
  const ParameterTable& table = one.decoder.table();
  const RankGroups groups(grid, world.rank(), make, {.sequence_parallel = c.sequence_parallel});
  const PipelineGroups pipe(grid, world.rank(), make, layout_of(c, one.decoder.config()), table);
  const Placement placement = pipe.placement(groups.placement());
  WeightSet weights(table, placement, Precision::f64());
  one.give_weights(weights);
  GradientBuffer buffer(table, placement, DType::f64);

  const int64_t share = c.problem.rows / groups.batch_ranks(), first = groups.batch_rank() * share;
  const PipelineShape shape{pipe.stages(), pipe.layout().chunks(), static_cast<int>(share), c.group};
  const Pipeline pipeline(one.decoder, weights.precision(), pipe, make_pipeline_schedule(c.schedule, shape));
  const int64_t stream_rows = kParityLength / (c.sequence_parallel ? c.grid.tp : 1);
  ParityOutcome o;
  const auto step = [&](Tape& tape, int b) {
    return std::make_unique<ParityStep>(one, weights, tape, first + b, 1, &groups, o);
  };
  TapeOptions options = parity_tape(c.problem, &buffer);
  CountingArena dry;
  options.device = DeviceKind::null;
  pipeline.run(step, stream_rows, options, dry);
  options.device = DeviceKind::cpu;
  buffer.begin_step();
  if (c.schedule == PipelineScheduleKind::merged && (c.grid.tp > 1 || c.grid.ep > 1)) {
    HeapArena arena;
    EXPECT_GT(pipeline.run(step, stream_rows, options, arena).hidden, 0);
    EXPECT_EQ(arena.live_bytes(), 0);
    // On the null device nobody waits, so buffers that pass quickly in one strand never meet those of the
    // other.
    EXPECT_GE(arena.peak_bytes(), dry.peak_bytes());
    EXPECT_LE(static_cast<double>(arena.peak_bytes()), 1.25 * static_cast<double>(dry.peak_bytes()));
  } else {
    PlannedArena arena(plan_memory(dry.lives()));
    EXPECT_EQ(pipeline.run(step, stream_rows, options, arena).hidden, 0);
    EXPECT_EQ(arena.live_bytes(), 0);
    EXPECT_EQ(arena.misses(), 0);
    EXPECT_EQ(arena.peak_bytes(), dry.peak_bytes());
  }
  EXPECT_EQ(buffer.finish_step(), std::vector<std::string>{});
  reduce_gradients(groups, table, buffer);
  pipe.sum_shared(buffer);
  one.expect_gradients(buffer, placement, world.rank());
  const double squares = square_sum(groups, pipe, table, buffer);
  EXPECT_LE(std::abs(squares - one.outcome.square_sum) / one.outcome.square_sum, 1e-9);

  Array nll{o.nll};
  all_reduce(groups.data(), nll);
  if (pipe.stage() == pipe.stages() - 1) {
    EXPECT_LE(std::abs(nll[0] - one.outcome.nll) / one.outcome.nll, 1e-12);
  }
  for (auto& [layer, counts] : o.counts) {
    all_reduce(groups.tokens(), counts);
    EXPECT_EQ(counts, one.outcome.counts.at(layer)) << "layer " << layer;
  }
}

}  // namespace ingot::test
