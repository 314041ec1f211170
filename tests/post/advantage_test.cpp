// Advantages and length rewards against hand tables.
#include "post/rl/advantage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "post/rl/length_reward.h"

namespace ingot::advantage_test {
namespace {

void expect_all(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << "rollout " << i;
}

TEST(Advantage, HandTables) {
  const std::vector<double> r = {1, 0, 0, 0};
  expect_all(advantages(AdvantageKind::reinforce, r), {1, 0, 0, 0});
  expect_all(advantages(AdvantageKind::rloo, r), {1, -1.0 / 3, -1.0 / 3, -1.0 / 3});
  expect_all(advantages(AdvantageKind::dr_grpo, r), {0.75, -0.25, -0.25, -0.25});
  const double deviation = 0.5 + 1e-6;  // sqrt((0.75^2 + 3 * 0.25^2) / 3)
  expect_all(advantages(AdvantageKind::grpo, r),
             {0.75 / deviation, -0.25 / deviation, -0.25 / deviation, -0.25 / deviation});
  expect_all(advantages(AdvantageKind::maxrl, r), {3, -1, -1, -1});
}

TEST(Advantage, RewardsBetweenZeroAndOne) {
  const std::vector<double> r = {0.5, 1.5, 1.0};
  expect_all(advantages(AdvantageKind::rloo, r), {0.5 - 1.25, 1.5 - 0.75, 0});
  expect_all(advantages(AdvantageKind::dr_grpo, r), {-0.5, 0.5, 0});
  expect_all(advantages(AdvantageKind::grpo, r), {-0.5 / (0.5 + 1e-6), 0.5 / (0.5 + 1e-6), 0});
  expect_all(advantages(AdvantageKind::maxrl, r), {-0.5, 0.5, 0});
}

TEST(Advantage, OneOfSixteenUnderMaxRl) {
  std::vector<double> r(16, 0.0);
  r[5] = 1;
  std::vector<double> expected(16, -1.0);
  expected[5] = 15;
  expect_all(advantages(AdvantageKind::maxrl, r), expected);
}

TEST(Advantage, EqualRewardsTeachNothing) {
  for (const double reward : {0.0, 1.0, 0.25}) {
    const std::vector<double> r(4, reward);
    EXPECT_FALSE(has_signal(r));
    for (const AdvantageKind kind :
         {AdvantageKind::rloo, AdvantageKind::grpo, AdvantageKind::dr_grpo, AdvantageKind::maxrl})
      expect_all(advantages(kind, r), {0, 0, 0, 0});
  }
  EXPECT_TRUE(has_signal(std::vector<double>{0, 0, 1}));
}

TEST(Advantage, BonusesMoveTheScoreAndNotTheSolvedShare) {
  const std::vector<double> r = {1, 1, 0, 0}, bonus = {0.2, -0.2, 0, 0};
  expect_all(advantages(AdvantageKind::maxrl, r, bonus), {1.4, 0.6, -1, -1});  // (s - 0.5) / 0.5
  expect_all(advantages(AdvantageKind::dr_grpo, r, bonus), {0.7, 0.3, -0.5, -0.5});
}

TEST(Advantage, GroupsOfOneAndNone) {
  const std::vector<double> one = {1};
  EXPECT_EQ(advantages(AdvantageKind::rloo, one), std::vector<double>{0});
  EXPECT_EQ(advantages(AdvantageKind::reinforce, one), std::vector<double>{1});
  EXPECT_TRUE(advantages(AdvantageKind::grpo, {}).empty());
}

TEST(Advantage, RewardsThatAreNoNumbersAreNamed) {
  const std::vector<double> r = {1, std::numeric_limits<double>::quiet_NaN()};
  try {
    advantages(AdvantageKind::maxrl, r);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("reward of rollout 1"), std::string::npos) << e.what();
  }
  const std::vector<double> fine = {1, 0}, infinite = {std::numeric_limits<double>::infinity(), 0};
  EXPECT_THROW(advantages(AdvantageKind::rloo, fine, infinite), Error);
}

// The six cases of the length reward: shortest, within the tolerance, longer, longest, wrong; and the two
// gates, of which each takes away every bonus.
TEST(LengthReward, SixCases) {
  const LengthReward rule{.coefficient = 1, .longest = 110, .tolerance = 10, .accuracy_tolerance = 0.05};
  const std::vector<double> r = {1, 1, 1, 1, 0};
  const std::vector<int64_t> lengths = {10, 20, 60, 110, 5};
  // p = 0.8; lambda = 1/2, 1/2, 1/2 - 50/100, 1/2 - 1
  expect_all(length_bonuses(rule, r, lengths, 0.8), {0.4, 0.4, 0, -0.4, 0});
  expect_all(length_bonuses(rule, r, lengths, 0.84), {0.4, 0.4, 0, -0.4, 0});
  expect_all(length_bonuses(rule, r, lengths, 0.86), {0, 0, 0, 0, 0});  // p <= best - 0.05
  const std::vector<double> once = {1, 0, 0, 0, 0};
  expect_all(length_bonuses(rule, once, lengths, 0.2), {0, 0, 0, 0, 0});  // p = 1/G
  const std::vector<double> none(5, 0.0);
  expect_all(length_bonuses(rule, none, lengths, 0), {0, 0, 0, 0, 0});
}

TEST(LengthReward, CoefficientScalesAndLengthsBeyondTheLongestAreClamped) {
  const LengthReward rule{.coefficient = 0.5, .longest = 20, .tolerance = 0};
  const std::vector<double> r = {1, 1};
  expect_all(length_bonuses(rule, r, std::vector<int64_t>{10, 500}, 1), {0.25, -0.25});
  expect_all(length_bonuses({.coefficient = 0, .longest = 20}, r, std::vector<int64_t>{10, 500}, 1), {0, 0});
}

TEST(LengthReward, OverlongPenalty) {
  EXPECT_EQ(overlong_penalty(80, 100, 20), 0);
  EXPECT_NEAR(overlong_penalty(85, 100, 20), -0.25, 1e-12);
  EXPECT_NEAR(overlong_penalty(99, 100, 20), -0.95, 1e-12);
  EXPECT_EQ(overlong_penalty(100, 100, 20), -1);
  EXPECT_EQ(overlong_penalty(1000, 100, 20), -1);
  EXPECT_EQ(overlong_penalty(1000, 100, 0), 0);
}

TEST(LengthReward, BestPassRateIsTheLargestRunningMean) {
  BestPassRate best;
  EXPECT_DOUBLE_EQ(best.add(0.5), 0.5);
  EXPECT_DOUBLE_EQ(best.add(1.0), 0.55);
  EXPECT_DOUBLE_EQ(best.add(0.0), 0.55);
  EXPECT_DOUBLE_EQ(best.mean(), 0.495);
  EXPECT_EQ(best.groups(), 3);
}

}  // namespace
}  // namespace ingot::advantage_test
