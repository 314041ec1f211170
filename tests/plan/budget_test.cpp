// Reads and failures: the source's example, and goodput against a simulated run.
#include "plan/budget.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "support/small_cluster.h"

namespace ingot::test::budget_test {

TEST(Budget, ReadsOfALoader) {
  const LoaderReads r = loader_reads(4096.0 * 4096 * 4, 4096, 2.5, 70000);
  EXPECT_EQ(std::lround(r.per_second), 6554);
  EXPECT_NEAR(r.break_even, 0.234, 0.0005);
}

/// A run with failures drawn one by one.
double simulated(const FailureRate& f, double interval, double pause) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> between(1 / f.between());
  double time = 0, kept = 0;
  double next = between(random);
  for (int period = 0; period < 200000;) {
    if (next >= interval + pause) {
      time += interval + pause, next -= interval + pause, kept += interval, ++period;
    } else {
      time += next + f.detect_seconds + f.restart_seconds;
      next = between(random);
    }
  }
  return kept / time;
}

TEST(Budget, GoodputIsThatOfASimulatedRun) {
  for (const auto& [devices, interval] : {std::pair{384.0, 3600.0}, {10000.0, 1200.0}}) {
    const FailureRate f{50000, devices, 300, 600};
    EXPECT_NEAR(goodput(f, interval, 20), simulated(f, interval, 20), 0.003) << devices;  // of 2e5 periods
  }
}

TEST(Budget, TheBestIntervalIsBest) {
  const FailureRate f{50000, 1024, 300, 600};
  const double best = best_interval(f, 30);
  // Young's rule, sqrt(2 pause mean), where both are short beside the mean.
  EXPECT_NEAR(best, std::sqrt(2 * 30 * f.between()), 0.05 * best);
  for (const double other : {0.7 * best, 1.4 * best}) EXPECT_LT(goodput(f, other, 30), goodput(f, best, 30));
  EXPECT_FALSE(std::isfinite(best_interval({0, 8}, 30)));
}

/// What a save stops training for: agreeing on it, writing out a run's three files of records, and the copy,
/// through the host's link where there is one.
TEST(Budget, APauseIsMoreThanItsCopy) {
  const Recipe recipe = recipe_from_tree(parse_toml("[[data.sources]]\nname = \"a\"\npath = \"b\"\n", "test"),
                                         {"--model.preset=llama-small", "--model.vocab=512"});
  const RunPlan plan = plan_ranks(recipe, {1, 1});
  Cluster cluster = small_cluster("80GB");
  StorageSpec disk;
  disk.name = "disk", disk.read_gb_per_s = disk.write_gb_per_s = 1;
  cluster.storage = {disk};
  const RunTime time = time_run(plan, cluster);
  const auto copied = static_cast<double>(plan.fullest().plan.memory.checkpoint);
  const auto pause = [&] { return budget_run(recipe, plan, time, cluster).checkpoint_pause; };
  ASSERT_GT(copied, 0);
  cluster.host.offload_gb_per_s = 0, cluster.device.bandwidth = 100;
  EXPECT_NEAR(pause(), copied / 50e9, 1e-12) << "half the bandwidth";
  cluster.device.copy_gb_per_s = 20, cluster.device.save_ms = 2, cluster.storage[0].sync_ms = 0.5;
  EXPECT_NEAR(pause(), copied / 20e9 + 3.5e-3, 1e-12);
  cluster.host.offload_gb_per_s = 10;
  EXPECT_NEAR(pause(), copied / 10e9 + 3.5e-3, 1e-12);
  cluster.storage[0].checkpoint_ms = 20;
  EXPECT_NEAR(budget_run(recipe, plan, time, cluster).checkpoint_write,
              1e-9 * static_cast<double>(plan.checkpoint_bytes) + 0.02, 1e-12);
  const nlohmann::json json = nlohmann::json::parse(to_json(budget_run(recipe, plan, time, cluster)));
  EXPECT_NEAR(json["checkpoint_pause_seconds"], pause(), 1e-9);
}

}  // namespace ingot::test::budget_test
