// What a step records of its replies: planted lengths, truncation and repetition are seen, and repetition has
// no reward.
#include "post/rl/rollout_metrics.h"

#include <gtest/gtest.h>

#include "post/rl/rollout_sampler.h"

namespace ingot::rollout_metrics_test {
namespace {

Rollout reply(std::vector<int32_t> ids, double reward) {
  Rollout r;
  r.recorded.assign(ids.size(), -0.5F), r.forced.assign(ids.size(), false);
  r.ids = std::move(ids), r.reward = reward;
  return r;
}

std::vector<int32_t> counting(int32_t n) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < n; ++i) ids.push_back(i * 7919 % 1000);
  return ids;
}

MetricRow metrics_of(const RolloutGroup& g) {
  MetricRow row;
  add_rollout_metrics({&g}, 1000, 0.05, row);
  return row;
}

TEST(Rollouts, PlantedRepetitionHasNoReward) {
  Rollout repeated = reply(std::vector<int32_t>(400, 3), 1), varied = reply(counting(400), 1);
  zero_repetition(repeated, 0.05, 1024);
  zero_repetition(varied, 0.05, 1024);
  EXPECT_EQ(repeated.reward, 0);
  EXPECT_NE(repeated.note, "");
  EXPECT_EQ(varied.reward, 1);
  Rollout off = reply(std::vector<int32_t>(400, 3), 1);
  zero_repetition(off, 0, 1024);
  EXPECT_EQ(off.reward, 1);
  RolloutGroup g;
  g.rollouts = {repeated, varied};
  const MetricRow row = metrics_of(g);
  EXPECT_EQ(*row.scalar("rl/repetition"), 0.5);
  EXPECT_LT(*row.scalar("rl/compression"), 0.05);
  EXPECT_EQ(*row.scalar("rl/reward"), 0.5);
}

// A policy that is paid for length grows longer: the record shows the means, the long end, the cut share.
TEST(Rollouts, LengthsAreSeen) {
  RolloutGroup g;
  g.problem.environment = "sort";
  for (int32_t n = 10; n <= 100; n += 10) g.rollouts.push_back(reply(counting(n), n / 100.0));
  g.rollouts.back().finish = FinishReason::max_tokens;
  g.asks_thinking = true;
  const MetricRow row = metrics_of(g);
  EXPECT_EQ(*row.scalar("rl/length"), 55);
  EXPECT_EQ(*row.scalar("rl/length/p90"), 90);
  EXPECT_EQ(*row.scalar("rl/length/thinking"), 55);
  EXPECT_EQ(row.scalar("rl/length/plain"), nullptr);
  EXPECT_DOUBLE_EQ(*row.scalar("rl/truncated"), 0.1);
  EXPECT_DOUBLE_EQ(*row.scalar("rl/entropy"), 0.5);
  EXPECT_DOUBLE_EQ(*row.scalar("rl/reward/sort"), 0.55);
}

TEST(Rollouts, ForcedTokensHaveNoEntropyAndFailedVerdictsNoReward) {
  RolloutGroup g;
  g.rollouts = {reply({1, 2, 999}, 1), reply({1, 2, 3}, 0)};
  g.rollouts[0].forced[1] = true;
  g.rollouts[0].recorded[1] = -50;
  g.rollouts[1].left_out = true;
  g.rollouts[0].parts = {{"answered", 1}};
  const MetricRow row = metrics_of(g);
  EXPECT_DOUBLE_EQ(*row.scalar("rl/entropy"), 0.5);
  EXPECT_DOUBLE_EQ(*row.scalar("rl/forced"), 1.0 / 6);
  EXPECT_EQ(*row.scalar("rl/reward"), 1);
  EXPECT_EQ(*row.scalar("rl/failed_verdicts"), 1);
  EXPECT_EQ(*row.scalar("rl/part/answered"), 1);
  EXPECT_DOUBLE_EQ(*row.scalar("rl/rare_tokens"), 1.0 / 6);
}

}  // namespace
}  // namespace ingot::rollout_metrics_test
