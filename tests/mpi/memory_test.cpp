// The memory of a rank: weights, gradients and the planned slab are what the process takes, with its messages.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "mpi/this_world.h"
#include "parallel/unit_keeper.h"
#include "support/layout_parity.h"

namespace ingot::test {
namespace {

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
void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

void expect_predicted(const GridShape& grid, const RankOptions& options = {}) {
  forget_peak();
  const double level = status_mib("VmRSS");
  const RankGroups groups(Grid(grid), this_world().rank(), group_maker(this_world()), options);
  Model model(large_model(), Precision::f32(), groups.placement());
  model.join([&](Context& c) { groups.join(c); });
  std::optional<UnitKeeper> keeper;
  if (options.shards.level == ShardLevel::full) keeper.emplace(groups, model.weights());
  model.weights().initialize(5);
  GradientBuffer gradients(model.decoder().table(), groups.placement(), DType::f32);
  StepRunner runner(model, gradients, {&groups});
  const int64_t rows = groups.batch_ranks();
  runner.run(packed_batch(rows, 256, std::vector<int64_t>(static_cast<size_t>(rows), 256), 16384), {.micro_batch = 1});
  const int64_t transient = model.weights().transient_bytes() + gradients.transient_bytes();
  const double predicted = static_cast<double>(model.bytes() + gradients.bytes() + transient + runner.slab_bytes()) / 0x1p20;
  const double measured = status_mib("VmHWM") - level;
  EXPECT_GT(predicted, 200);
  EXPECT_NEAR(measured, predicted, std::max(64.0, 0.05 * measured));
  if (this_world().rank() == 0)
    std::printf("  %s%s: predicted %.0f MiB, measured %.0f MiB\n", Grid(grid).str().c_str(), keeper ? " shared out" : "", predicted, measured);
}

TEST(MpiMemory, ARankTakesWhatIsPredicted) {
  const RankOptions full{.shards = {.level = ShardLevel::full, .units = FlatUnits::part}};
  const int ranks = this_world().ranks();
  if (ranks != 2 && ranks != 4) GTEST_SKIP() << "no case has " << ranks << " ranks";
  ranks == 2 ? expect_predicted({.dp = 2, .ep = 2}) : expect_predicted({.dp = 2, .tp = 2, .ep = 2});
  ranks == 2 ? expect_predicted({.dp = 2}, full) : expect_predicted({.dp = 4, .ep = 2}, full);
}

}  // namespace
}  // namespace ingot::test
