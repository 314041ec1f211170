// The time of a step of whole runs: what of their exchanges has nothing to hide behind.
#include "plan/run_time.h"

#include <gtest/gtest.h>

#include "measure/fabric.h"
#include "measure/rank_drift.h"
#include "nn/parameter.h"
#include "optim/update_cost.h"
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

/// Ranks that drift apart wait for the last of them: copies once a step, for all of its work; tensor ranks at
/// every exchange, so for longer in total. Alone nobody waits.
TEST(RunTime, RanksThatDriftApartWaitForTheLast) {
  Cluster steady = small_cluster("80GB"), drifting = steady;
  drifting.device.drift_ms = 50;
  const auto waits = [&](const std::vector<std::string>& layout, int ranks) {
    const RunPlan plan = plan_ranks(recipe(layout), {ranks, 1});
    const double before = time_run(plan, steady).step.seconds;
    return (time_run(plan, drifting).step.seconds - before) / before;
  };
  EXPECT_EQ(waits({}, 1), 0);
  const RunTime two = time_run(plan_ranks(recipe({}), {2, 1}), steady);
  double work = 0;
  for (const double seconds : two.step.ranks[0].busy) work += seconds;
  const double copies = waits({}, 2), tensor = waits({"--parallel.tensor=2"}, 2);
  EXPECT_NEAR(copies * two.step.seconds, expected_wait(0.05, 2, work), 1e-3 * copies * two.step.seconds);
  EXPECT_GT(tensor, 2 * copies);
}

/// Full sharding gives back what it gathered and summed; what has to be had anew each time takes its time.
TEST(RunTime, FreshMemoryOfGatheredWeightsTakesTime) {
  const RunPlan plan = plan_ranks(recipe({"--parallel.shard=full"}), {8, 1});
  Cluster cluster = small_cluster("80GB");
  cluster.device.rate_beside_transfers = 0;
  const double before = time_run(plan, cluster).step.seconds;
  cluster.device.fresh_gb_per_s = 1;
  const double seconds = time_run(plan, cluster).step.seconds - before,
               masters = 4e-9 * static_cast<double>(plan.parameters.total);
  EXPECT_GT(seconds, masters) << "gathered once at least";
  EXPECT_LT(seconds, 4 * masters) << "gathered in forward and backward, and summed";
}

/// One rank of a small cluster with what was measured of ops and updates.
RunTime timed(const Recipe& r, const std::vector<DevicePoint>& points) {
  Cluster cluster = small_cluster("80GB");
  cluster.device.points = points;
  return time_run(plan_ranks(r, {1, 1}), cluster);
}

DevicePoint point(const std::string& op, double bytes, double tflops, double gb_per_s) {
  DevicePoint p;
  p.op = op, p.bytes = bytes, p.tflops = tflops, p.gb_per_s = gb_per_s, p.type = "f32";
  return p;
}

/// An op takes its bytes over the rate of its own points, whichever their type, and no other op does.
TEST(RunTime, OpsFollowTheirPoints) {
  const Recipe r = recipe({});
  const auto kernels = [&](double gb_per_s) {
    const RunTime t = timed(r, {point("add_norm", 1e6, 0, gb_per_s), point("cca", 1e6, 0, 1e-3)});
    return t.step.ranks[0].busy[static_cast<size_t>(TimeOf::kernels)];
  };
  const double slow = kernels(1), slower = kernels(0.5), slowest = kernels(0.25);
  EXPECT_GT(slower, slow);
  EXPECT_NEAR(slowest - slower, 2 * (slower - slow), 1e-9 * slowest);
}

/// Points of the type that is planned count alone, however near others are.
TEST(RunTime, OpsPreferPointsOfTheirType) {
  DevicePoint near = point("add_norm", 2e5, 0, 50), far = point("add_norm", 1e9, 0, 1);
  far.type = "bf16";
  EXPECT_EQ(timed(recipe({}), {near, far}).step.seconds, timed(recipe({}), {far}).step.seconds);
}

DevicePoint product(const std::string& op, int64_t size, double tflops) {
  DevicePoint p;
  p.op = op, p.type = "bf16", p.tflops = tflops;
  p.sizes = {size, size, size, 0, 0};
  return p;
}

/// Those of their op count alone, and where none is near those of "linear".
TEST(RunTime, ProductsPreferPointsOfTheirOp) {
  const Recipe r = recipe({});
  const auto products = [&](const std::vector<DevicePoint>& points) {
    return timed(r, points).step.ranks[0].busy[static_cast<size_t>(TimeOf::products)];
  };
  const DevicePoint linear = product("linear", 512, 0.1);
  const double alone = products({linear});
  const double slow = products({linear, product("head", 512, 0.05)}),
               slower = products({linear, product("head", 512, 0.025)});
  EXPECT_GT(slow, alone);
  EXPECT_LT(slow, 1.9 * alone) << "other products stay as they are";
  EXPECT_NEAR(slower - alone, 3 * (slow - alone), 1e-9 * slower);
  EXPECT_EQ(products({linear, product("head", 1'000'000, 0.025)}), alone);
}

TEST(RunTime, WhatIsBetweenKernelsAddsItsShare) {
  Cluster cluster = small_cluster("80GB");
  cluster.device.launch_us = 0;
  const RunPlan plan = plan_ranks(recipe({}), {1, 1});
  const auto before = time_run(plan, cluster).step.ranks[0].busy;
  cluster.device.rest_share = 0.25;
  const auto after = time_run(plan, cluster).step.ranks[0].busy;
  for (const TimeOf what : {TimeOf::products, TimeOf::attention, TimeOf::kernels}) {
    const auto at = static_cast<size_t>(what);
    EXPECT_NEAR(after[at], 1.25 * before[at], 1e-9 * before[at]) << name_of(what);
  }
  const auto update = static_cast<size_t>(TimeOf::optimizer);
  EXPECT_EQ(after[update], before[update]);
}

/// Muon's products take FLOPs over their points' rate of their type, and its bytes the memory's.
TEST(RunTime, UpdatesFollowTheirPoints) {
  const Recipe r = recipe({"--optimizer.matrices=muon"});
  const UpdateCost cost = update_cost(PaperRank(r, {1, 1}, 0).engine().optimizer());
  ASSERT_GT(cost.flops, 0);
  const auto seconds = [&](const std::vector<DevicePoint>& points) {
    return timed(r, points).step.ranks[0].busy[static_cast<size_t>(TimeOf::optimizer)];
  };
  const double moved = cost.bytes / (1e9 * small_cluster("80GB").device.bandwidth);
  EXPECT_NEAR(seconds({point("update", 1e6, 0.5, 0)}), cost.flops / 0.5e12 + moved, 1e-12);
  EXPECT_NEAR(seconds({point("update", 1e6, 0.5, 0), point("update", 1e6, 0, 2)}),
              cost.flops / 0.5e12 + cost.bytes / 2e9, 1e-9);
  DevicePoint other = point("update", 1e6, 0.5, 0);
  other.type = "bf16";  // of products that this update does not make
  EXPECT_EQ(seconds({other}), seconds({}));
}

/// Small matrices are multiplied at lower rates, however much an update moves.
TEST(RunTime, UpdatesFollowPointsOfMatricesOfTheirSize) {
  const Recipe r = recipe({"--optimizer.matrices=muon"});
  const UpdateCost cost = update_cost(PaperRank(r, {1, 1}, 0).engine().optimizer());
  DevicePoint alike = point("update", 1e12, 0.5, 0), larger = point("update", cost.bytes, 1, 0);
  alike.sizes.k = std::llround(cost.depth), larger.sizes.k = 64 * alike.sizes.k;
  const auto seconds = [&](const std::vector<DevicePoint>& points) {
    return timed(r, points).step.ranks[0].busy[static_cast<size_t>(TimeOf::optimizer)];
  };
  EXPECT_NEAR(seconds({alike, larger}), seconds({alike}), 0.01 * seconds({alike}));
}

/// Each rank that has a slice of a matrix orthogonalises the whole.
TEST(RunTime, SlicesOfMatricesCostTheWhole) {
  const auto cost = [](const std::vector<std::string>& more, int ranks) {
    std::vector<std::string> all = {"--optimizer.matrices=muon"};
    all.insert(all.end(), more.begin(), more.end());
    return update_cost(PaperRank(recipe(all), {ranks, 1}, 0).engine().optimizer());
  };
  const auto flops = [&](const std::vector<std::string>& more, int ranks) { return cost(more, ranks).flops; };
  const auto depth = [&](const std::vector<std::string>& more, int ranks) { return cost(more, ranks).depth; };
  const double alone = flops({}, 1);
  EXPECT_NEAR(flops({"--parallel.tensor=2"}, 2), alone, 1e-9 * alone);
  EXPECT_NEAR(depth({"--parallel.tensor=2"}, 2), depth({}, 1), 1e-9 * alone);
  const auto gathered = [](const std::vector<std::string>& more, int ranks) {
    std::vector<std::string> all = {"--optimizer.matrices=muon"};
    all.insert(all.end(), more.begin(), more.end());
    double bytes = 0;
    const PaperRank rank(recipe(all), {ranks, 1}, 0);
    for (const UpdateGather& g : update_gathers(rank.engine().optimizer())) {
      EXPECT_EQ(g.ranks->size(), ranks);
      bytes += g.bytes;
    }
    return bytes;
  };
  EXPECT_EQ(gathered({}, 1), 0);
  EXPECT_GT(gathered({"--parallel.tensor=2"}, 2), 1e7) << "all matrices of 4 million elements, in fp32";
  const double shared = flops({"--parallel.shard=optimizer", "--parallel.whole_matrices=true"}, 2);
  EXPECT_LT(shared, 0.7 * alone);
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
