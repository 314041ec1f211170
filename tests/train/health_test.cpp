// The loss watch: a planted spike, its patience, a gradient that stays 0, and its state in a checkpoint.
#include "train/health.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "train/run_state.h"

namespace ingot::health_test {

using enum LossWatch::Verdict;

constexpr LossWatch::Limits kLimits{.sigma = 8, .patience = 3, .dead_patience = 4};

/// A watch that has seen `steps` steps of a loss that falls slowly, with a little noise.
LossWatch calm(int64_t steps) {
  LossWatch watch(kLimits);
  for (int64_t s = 1; s <= steps; ++s)
    EXPECT_EQ(watch.observe(s, 3 - 0.002 * static_cast<double>(s) + (s % 2 == 0 ? 0.02 : 0), 1), fine) << s;
  return watch;
}

TEST(LossWatch, NothingIsJudgedBeforeThirtySteps) {
  LossWatch watch = calm(29);
  EXPECT_EQ(watch.observe(30, 50, 1), fine);
}

/// A phase with another mixture begins with another loss, which is no spike; one with another rate does not.
TEST(LossWatch, OnlyLossesOfTheSameKindAreCompared) {
  PhaseConfig a;
  a.weights = {{"english", 0.5}, {"solved", 0.5}};
  EXPECT_TRUE(has_comparable_losses(a, a));
  const auto compares = [&](auto change) {
    PhaseConfig b = a;
    change(b);
    return has_comparable_losses(a, b);
  };
  EXPECT_TRUE(compares([](PhaseConfig& b) { b.lr = 1e-5, b.steps = 7, b.sequence = 512, b.name = "decay"; }));
  EXPECT_FALSE(compares([](PhaseConfig& b) { b.weights[1].weight = 0.6; }));
  EXPECT_FALSE(compares([](PhaseConfig& b) { b.weights[1].source = "checked"; }));
  EXPECT_FALSE(compares([](PhaseConfig& b) { b.weights.pop_back(); }));
  EXPECT_FALSE(compares([](PhaseConfig& b) { b.weights.clear(); }));
  EXPECT_FALSE(compares([](PhaseConfig& b) { b.kind = "chat"; }));
  EXPECT_FALSE(compares([](PhaseConfig& b) { b.objective = "other"; }));
  EXPECT_FALSE(compares([](PhaseConfig& b) { b.z_coefficient = 1e-4; }));
}

TEST(LossWatch, APlantedSpikeIsSeenAndEndsAfterItsPatience) {
  LossWatch watch = calm(40);
  EXPECT_EQ(watch.observe(41, watch.mean() + 0.49, 1), fine);  // noise, whatever sigma says
  EXPECT_EQ(watch.observe(42, 9, 1), spike);
  const double mean = watch.mean();
  EXPECT_EQ(watch.observe(43, 9, 1), spike);
  EXPECT_EQ(watch.mean(), mean) << "a spike is left out of the mean";
  EXPECT_EQ(watch.first_spike(), 42);
  EXPECT_EQ(watch.observe(44, 9, 1), diverged);
  EXPECT_EQ(watch.spike_steps(), 3);
}

TEST(LossWatch, ASpikeIsOverAfterAsManyFineSteps) {
  LossWatch watch = calm(40);
  EXPECT_EQ(watch.observe(41, 9, 1), spike);
  EXPECT_EQ(watch.observe(42, 2.9, 1), fine);
  EXPECT_EQ(watch.observe(43, 9, 1), spike);  // the same trouble
  EXPECT_EQ(watch.first_spike(), 41);
  EXPECT_EQ(watch.spike_steps(), 1);
  for (int64_t s = 44; s < 46; ++s) EXPECT_EQ(watch.observe(s, 2.9, 1), fine);
  EXPECT_EQ(watch.first_spike(), 41);
  EXPECT_EQ(watch.observe(46, 2.9, 1), fine);
  EXPECT_EQ(watch.first_spike(), 0);
}

TEST(LossWatch, ItsStateIsSavedAndRestored) {
  LossWatch watch = calm(40);
  EXPECT_EQ(watch.observe(41, 9, 0), spike);
  EXPECT_EQ(watch.observe(42, 9, 0), spike);
  LossWatch restored(kLimits);
  restored.restore(watch.json());
  EXPECT_EQ(restored.json(), watch.json());
  EXPECT_EQ(restored.first_spike(), 41);
  EXPECT_EQ(restored.dead_steps(), 2);
  EXPECT_EQ(restored.observe(43, 9, 1), diverged);
  EXPECT_THROW(restored.restore("{}"), Error);
  EXPECT_THROW(restored.restore("x"), Error);
  // As earlier releases wrote it.
  restored.restore(R"({"mean":2.5,"seen":40,"spike_steps":0,"variance":0.01})");
  EXPECT_EQ(restored.first_spike(), 0);
  EXPECT_EQ(restored.dead_steps(), 0);
  EXPECT_EQ(restored.json(), R"({"mean":2.5,"seen":40,"spike_steps":0,"variance":0.01})");
}

TEST(LossWatch, AGradientThatStaysZeroIsNoticed) {
  LossWatch watch(kLimits);
  for (int64_t s = 1; s <= 3; ++s) EXPECT_EQ(watch.observe(s, 6.2, 0), fine);
  EXPECT_EQ(watch.observe(4, 6.2, 1e-30), fine);
  for (int64_t s = 5; s <= 7; ++s) EXPECT_EQ(watch.observe(s, 6.2, 0), fine);
  EXPECT_EQ(watch.observe(8, 6.2, 0), dead);
  LossWatch off({.sigma = 8, .patience = 3});
  for (int64_t s = 1; s <= 100; ++s) EXPECT_EQ(off.observe(s, 6.2, 0), fine);
}

}  // namespace ingot::health_test
