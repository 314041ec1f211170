// The memory of a rank: weights, gradients and the planned slab are what the process takes, with its messages.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "mpi/this_world.h"
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

void expect_predicted(const GridShape& grid) {
  const double level = status_mib("VmRSS");
  const RankGroups groups(Grid(grid), this_world().rank(), group_maker(this_world()));
  Model model(large_model(), Precision::f32(), groups.placement());
  model.join([&](Context& c) { groups.join(c); });
  for (int i = 0; i < model.weights().size(); ++i) {
    const Tensor t = model.weights().master(i);
    std::fill_n(t.as<float>(), t.numel(), 0.01f);
  }
  GradientBuffer gradients(model.decoder().table(), groups.placement(), DType::f32);
  StepRunner runner(model, gradients, {&groups});
  const int64_t rows = groups.batch_ranks();
  runner.run(packed_batch(rows, 256, std::vector<int64_t>(static_cast<size_t>(rows), 256), 16384), {.micro_batch = 1});
  const double predicted = static_cast<double>(model.bytes() + gradients.bytes() + runner.slab_bytes()) / 0x1p20;
  const double measured = status_mib("VmHWM") - level;
  EXPECT_GT(predicted, 200);
  EXPECT_NEAR(measured, predicted, std::max(64.0, 0.05 * measured));
  if (this_world().rank() == 0) std::printf("  %s: predicted %.0f MiB, measured %.0f MiB\n", Grid(grid).str().c_str(), predicted, measured);
}

TEST(MpiMemory, ARankTakesWhatIsPredicted) {
  if (this_world().ranks() == 2) return expect_predicted({.dp = 2, .ep = 2});
  if (this_world().ranks() == 4) return expect_predicted({.dp = 2, .tp = 2, .ep = 2});
  GTEST_SKIP() << "no case has " << this_world().ranks() << " ranks";
}

}  // namespace
}  // namespace ingot::test
