// The memory of a rank process: weights, gradients, the planned slab, and messages.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "models/presets.h"
#include "mpi/this_world.h"
#include "parallel/weight_gatherer.h"
#include "support/layout_parity.h"

namespace ingot::test::memory_test {

/// A line of /proc/self/status in MiB.
double status_mib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(name + ":", 0) == 0) return std::atof(line.c_str() + name.size() + 1) / 1024;
  return -1;
}

/// About 300 MiB on a rank, of which a third is the slab.
ModelConfig large_model() {
  ModelConfig m = model_preset("moe-small");
  m.vocab = 16384;
  m.width = 512;
  m.layers = 4;
  m.heads = 8;
  m.kv_heads = 4;
  m.head_width = 64;
  m.moe.hidden = 512;
  m.moe.experts = 16;
  return m;
}

/// The peak counts anew.
void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

void expect_predicted(const GridShape& grid, const RankOptions& options = {}) {
  forget_peak();
  const double level = status_mib("VmRSS");
  const int rank = this_world().rank();
  const GroupMaker make = group_maker(this_world());
  const RankGroups groups(Grid(grid), rank, make, options);
  const ModelConfig config = large_model();
  const PipelineGroups pipe(Grid(grid), rank, make, even_pipeline_layout(grid.pp, 1, config.layers, 0),
                            Decoder(config).table());
  Model model(config, Precision::f32(), pipe.placement(groups.placement()));
  model.join([&](Context& c) { groups.join(c); });
  std::optional<WeightGatherer> gatherer;
  if (options.shards.level == ShardLevel::full) gatherer.emplace(groups, model.weights(), &pipe);
  model.weights().initialize(5);
  GradientBuffer gradients(model.decoder().table(), model.weights().placement(), DType::f32);
  const StepRanks ranks{
      .groups = &groups, .pipe = grid.pp > 1 ? &pipe : nullptr, .gatherer = gatherer ? &*gatherer : nullptr};
  StepRunner runner(model, gradients, ranks);
  const int64_t count = grid.pp > 1 ? 2 * grid.pp : 1, rows = groups.batch_ranks() * count;
  runner.run(packed_batch(rows, 256, std::vector<int64_t>(static_cast<size_t>(rows), 256), 16384),
             {.micro_batch = 1});
  const int64_t transient = plan_step(model, {.micro_batch = 1}, 1, 256, ranks, count).gathered_weight_bytes +
                            gradients.transient_bytes();
  const double predicted =
      static_cast<double>(model.bytes() + gradients.bytes() + transient + runner.slab_bytes()) / 0x1p20;
  const double measured = status_mib("VmHWM") - level;
  EXPECT_GT(predicted, 200);
  EXPECT_NEAR(measured, predicted, std::max(64.0, 0.05 * measured));
  if (rank == 0)
    std::printf("  %s%s: predicted %.0f MiB, measured %.0f MiB\n", Grid(grid).str().c_str(),
                gatherer ? " sharded" : "", predicted, measured);
}

TEST(MpiMemory, ARankTakesWhatIsPredicted) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer takes memory of its own";
#endif
  const RankOptions full{.shards = {.level = ShardLevel::full, .buckets = FlatBuckets::layer_group}};
  const int ranks = this_world().ranks();
  if (ranks != 2 && ranks != 4) GTEST_SKIP() << "no case has " << ranks << " ranks";
  ranks == 2 ? expect_predicted({.dp = 2, .ep = 2}) : expect_predicted({.dp = 2, .tp = 2, .ep = 2});
  ranks == 2 ? expect_predicted({.dp = 2}, full) : expect_predicted({.dp = 4, .ep = 2}, full);
  if (ranks == 4) expect_predicted({.pp = 2, .dp = 2}, full);
}

}  // namespace ingot::test::memory_test
