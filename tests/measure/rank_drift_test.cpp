// How far ranks drift apart, from profiles, and what a wait for the last of them takes.
#include "measure/rank_drift.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace ingot::test::rank_drift_test {

/// Two ranks of ops of 10 ms; in half of them the second takes 2 ms longer, in the others the first.
ProfileReport example() {
  ProfileReport p;
  p.ranks.resize(2);
  for (RankProfile& rank : p.ranks) {
    rank.processor_share = {0.9, 1, 1};
    StepSpan& step = rank.steps.emplace_back();
    for (int i = 0; i < 100; ++i) {
      OpSpan& op = step.ops.emplace_back();
      op.op = "linear", op.what = TimeOf::products;
      op.end = 0.010 + ((i % 2 == 0) == (&rank == &p.ranks[0]) ? 0.001 : -0.001);
      OpSpan& wait = step.ops.emplace_back();
      wait.op = "wait", wait.what = TimeOf::exchanges, wait.end = 100;
    }
  }
  return p;
}

TEST(RankDrift, IsTheSpreadOfEqualWork) {
  // Of differences of 2 ms in 10 ms: of normal ones the mean is 2 / sqrt(pi) of a rank's deviation.
  const double expected = 0.002 / std::sqrt(0.010) * std::sqrt(std::numbers::pi) / 2;
  EXPECT_NEAR(rank_drift(example()), expected, 1e-12);
}

TEST(RankDrift, SmallOpsCountInWindows) {
  ProfileReport p = example();
  for (RankProfile& rank : p.ranks)
    for (OpSpan& op : rank.steps[0].ops) op.end /= 10;
  // Of five ops of 1 ms, four cancel.
  const double expected = 0.0002 / std::sqrt(0.005) * std::sqrt(std::numbers::pi) / 2;
  EXPECT_NEAR(rank_drift(p), expected, 1e-12);
}

TEST(RankDrift, IsNothingWhereNothingCanBeCompared) {
  ProfileReport one = example();
  one.ranks.pop_back();
  EXPECT_EQ(rank_drift(one), 0) << "one rank";
  ProfileReport other = example();
  other.ranks[1].steps[0].ops[40].op = "attention";
  EXPECT_EQ(rank_drift(other), 0) << "a stage with other ops";
  ProfileReport fewer = example();
  fewer.ranks[1].steps[0].ops.resize(100);
  EXPECT_EQ(rank_drift(fewer), 0) << "a stage with fewer ops";
  ProfileReport shared = example();
  shared.ranks[1].processor_share = {0.5, 0.5, 0.9};
  EXPECT_EQ(rank_drift(shared), 0) << "cores that ranks share";
  EXPECT_EQ(ranks_per_core(shared.ranks[1]), 2) << "half of a core, in the median";
  EXPECT_EQ(ranks_per_core(shared.ranks[0]), 1);
}

/// Expected largest of n normal values: Harter, "Expected values of normal order statistics" (Biometrika
/// 1961), table 1.
TEST(RankDrift, AGroupWaitsForItsLast) {
  EXPECT_EQ(expected_wait(0.01, 1, 1), 0);
  EXPECT_EQ(expected_wait(0, 2, 1), 0);
  EXPECT_NEAR(expected_wait(1, 2, 1), 0.56419, 1e-5);
  EXPECT_NEAR(expected_wait(1, 3, 1), 0.84628, 1e-5);
  EXPECT_NEAR(expected_wait(1, 10, 1), 1.53875, 1e-5);
  EXPECT_NEAR(expected_wait(1, 100, 1), 2.50759, 1e-5);
  EXPECT_NEAR(expected_wait(0.01, 2, 4), 2 * 0.0056419, 1e-7);
}

}  // namespace ingot::test::rank_drift_test
