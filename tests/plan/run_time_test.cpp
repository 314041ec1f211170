// The time of a step of whole runs: what of their exchanges has nothing to hide behind.
#include "plan/run_time.h"

#include <gtest/gtest.h>

#include "nn/parameter.h"
#include "plan/fabric.h"
#include "support/small_cluster.h"

namespace ingot::test::run_time_test {

Recipe recipe(const std::vector<std::string>& more) {
  std::vector<std::string> all = {"--model.preset=llama-small", "--model.vocab=512",
                                  "--run.precision=bf16",       "--phases.0.batch=16",
                                  "--phases.0.sequence=128",    "--optimizer.matrices=adamw"};
  all.insert(all.end(), more.begin(), more.end());
  return recipe_from_tree(parse_toml("[[data.sources]]\nname = \"a\"\npath = \"b\"\n", "test"), all);
}

/// Where kernels take long, exchanges of full sharding hide behind them but for the weights of the first
/// layer group, which the step begins with, and its gradients, which backward writes last; and, as an
/// embedding takes no time, at most those of the layer beside it.
TEST(RunTime, TheFirstGatherAndTheLastReductionOfFullShardingAreExposed) {
  Cluster slow = small_cluster("80GB");
  slow.device.rates.bf16 = 1;
  const Recipe r = recipe({"--parallel.shard=full", "--phases.0.micro_batch=2"});
  const PaperRank rank(r, {8, 1}, 0);
  const Fabric fabric(slow);
  const auto exchanged = [&](int64_t group) {
    double seconds = 0;
    const auto add = [&](CommKind kind, double bytes) {
      seconds += fabric.collective(kind, {8, 4}, bytes).seconds;
    };
    const WeightSet& weights = rank.engine().model().weights();
    for (size_t b = 0; b < weights.layout().buckets.size(); ++b)
      if (weights.layout().buckets[b].layer_group == group)
        add(CommKind::all_gather, static_cast<double>(weights.gather_tensor(static_cast<int>(b)).bytes()));
    for (const FlatBucket& b : rank.engine().gradients().layout().buckets)
      if (b.layer_group == group) add(CommKind::reduce_scatter, static_cast<double>(b.end - b.begin));
    return seconds;
  };
  const double first = exchanged(depth_of_layer_group(kEmbeddingGroup)), second = exchanged(0);
  ASSERT_GT(first, 0);
  const RunTime time = time_run(plan_ranks(r, {8, 1}), slow);
  EXPECT_GE(time.step.ranks[0].exposed.at("data"), 0.999 * first);
  EXPECT_LE(time.step.ranks[0].exposed.at("data"), 1.001 * (first + second));
}

/// Where links are slow, a step takes as long as what they carry: gathers forward and backward, reductions.
TEST(RunTime, SlowLinksAreWaitedFor) {
  Cluster slow = small_cluster("80GB");
  const Recipe r = recipe({"--parallel.shard=full", "--phases.0.micro_batch=2"});
  const double fast = time_run(plan_ranks(r, {8, 1}), slow).step.seconds;
  for (LinkLevel& l : slow.links) l.gb_per_s /= 100;
  const RunTime time = time_run(plan_ranks(r, {8, 1}), slow);
  EXPECT_GT(time.step.seconds, 2 * fast);
  EXPECT_GT(time.step.ranks[0].exposed.at("data"), 0.5 * time.step.seconds);
}

}  // namespace ingot::test::run_time_test
