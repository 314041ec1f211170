// Curricula: the rule, the window, stale groups, state; simulated learners.
#include "post/rl/curriculum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "post/rl/calibration.h"

namespace ingot::curriculum_test {
namespace {

const Random kRandom(7, RandomPurpose::test);

TEST(Curriculum, TheFrontierMoves) {
  Curriculum c({{.name = "sort", .lowest = 2, .highest = 5, .start = 3}}, {});
  EXPECT_EQ(c.report({0, 3}, 0.7), 0);  // not above 0.7
  EXPECT_EQ(c.report({0, 3}, 0.75), 1);
  EXPECT_EQ(c.difficulty(0), 4);
  EXPECT_EQ(c.report({0, 4}, 0.0), -1);
  EXPECT_EQ(c.report({0, 3}, 0.01), 0);
  EXPECT_EQ(c.report({0, 3}, 0.0), -1);
  EXPECT_EQ(c.report({0, 2}, 0.0), 0);  // the lowest
  EXPECT_EQ(c.difficulty(0), 2);
  for (int64_t d = 2; d < 5; ++d) EXPECT_EQ(c.report({0, d}, 1), 1);
  EXPECT_EQ(c.report({0, 5}, 1), 0);  // the highest
}

TEST(Curriculum, StaleAndEasierGroupsMoveNothing) {
  Curriculum c({{.name = "sort", .lowest = 0, .highest = 9, .start = 5}}, {});
  EXPECT_EQ(c.report({0, 4}, 1), 0);
  EXPECT_EQ(c.report({0, 5}, 1), 1);
  EXPECT_EQ(c.report({0, 5}, 0), 0);  // drawn before the frontier moved
  EXPECT_EQ(c.difficulty(0), 6);
}

TEST(Curriculum, DrawsFromTheWindow) {
  for (const int64_t window : {0, 4}) {
    Curriculum c({{.name = "sort", .lowest = 0, .highest = 20, .start = 10}},
                 {.moves = true, .window = window, .raise = 0.7});
    std::map<int64_t, int> seen;
    for (uint64_t i = 0; i < 500; ++i) ++seen[c.draw(kRandom, i).difficulty];
    EXPECT_EQ(seen.begin()->first, 10 - window);
    EXPECT_EQ(seen.rbegin()->first, 10);
    EXPECT_EQ(seen.size(), static_cast<size_t>(window + 1));
    for (const auto& [d, count] : seen) EXPECT_NEAR(count, 500.0 / static_cast<double>(window + 1), 40) << d;
  }
  Curriculum low({{.name = "sort", .lowest = 2, .highest = 20, .start = 3}}, {});
  for (uint64_t i = 0; i < 50; ++i) EXPECT_GE(low.draw(kRandom, i).difficulty, 2);
}

TEST(Curriculum, WithoutMovesEveryDifficultyIsDrawn) {
  Curriculum c({{.name = "sort", .lowest = 1, .highest = 4, .start = 1}}, {.moves = false});
  std::map<int64_t, int> seen;
  for (uint64_t i = 0; i < 400; ++i) ++seen[c.draw(kRandom, i).difficulty];
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_EQ(c.report({0, 1}, 1), 0);
}

TEST(Curriculum, LeastDrawnEnvironmentsComeFirst) {
  Curriculum c({{.name = "a", .highest = 0}, {.name = "b", .highest = 0}, {.name = "c", .highest = 0}}, {});
  for (uint64_t i = 0; i < 300; ++i) c.draw(kRandom, i);
  for (size_t e = 0; e < 3; ++e) EXPECT_NEAR(static_cast<double>(c.drawn(e)), 100, 12) << e;
  Curriculum uneven({{.name = "a", .highest = 0, .weight = 3}, {.name = "b", .highest = 0, .weight = 1}}, {});
  for (uint64_t i = 0; i < 400; ++i) uneven.draw(kRandom, i);
  EXPECT_NEAR(static_cast<double>(uneven.drawn(0)), 300, 25);
  Curriculum off({{.name = "a", .highest = 0, .weight = 0}, {.name = "b", .highest = 0}}, {});
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(off.draw(kRandom, i).environment, 1u);
}

TEST(Curriculum, ItsStateContinues) {
  const std::vector<CurriculumEnvironment> environments = {
      {.name = "a", .lowest = 0, .highest = 9, .start = 4}, {.name = "b", .lowest = 0, .highest = 9}};
  Curriculum c(environments, {}), again(environments, {});
  for (uint64_t i = 0; i < 20; ++i) c.report(c.draw(kRandom, i), i % 3 == 0 ? 1.0 : 0.4);
  again.restore(c.json(), "here");
  EXPECT_EQ(again.json(), c.json());
  for (uint64_t i = 20; i < 40; ++i) {
    const Curriculum::Draw one = c.draw(kRandom, i), other = again.draw(kRandom, i);
    EXPECT_EQ(one.environment, other.environment);
    EXPECT_EQ(one.difficulty, other.difficulty);
  }
  EXPECT_THROW(again.restore("{", "here"), Error);
  EXPECT_THROW(again.restore("[]", "here"), Error);
  Curriculum renamed({{.name = "a", .highest = 9}, {.name = "x", .highest = 9}}, {});
  EXPECT_THROW(renamed.restore(c.json(), "here"), Error);
  Curriculum narrower({{.name = "a", .highest = 1}, {.name = "b", .highest = 1}}, {});
  EXPECT_THROW(narrower.restore(c.json(), "here"), Error);
}

TEST(Curriculum, RefusesWhatCannotBe) {
  EXPECT_THROW(Curriculum({}, {}), Error);
  EXPECT_THROW(Curriculum({{.name = "a"}, {.name = "a"}}, {}), Error);
  EXPECT_THROW(Curriculum({{.name = "a", .lowest = 3, .highest = 2, .start = 3}}, {}), Error);
  EXPECT_THROW(Curriculum({{.name = "a", .lowest = 0, .highest = 2, .start = 3}}, {}), Error);
}

/// Successes of `tries` by a learner that solves half at `middle`.
int64_t solved(double middle, double scale, double difficulty, int64_t tries, uint64_t& index) {
  const double p = 1 / (1 + std::exp((difficulty - middle) / scale));
  int64_t n = 0;
  for (int64_t i = 0; i < tries; ++i) n += kRandom.uniform(index++) < p ? 1 : 0;
  return n;
}

// A learner that improves with what it is shown: the frontier stays where it solves a good part, and never
// runs away from it.
TEST(Curriculum, FollowsASimulatedLearner) {
  Curriculum c({{.name = "sort", .lowest = 0, .highest = 100, .start = 1}}, {});
  double middle = 4;
  uint64_t index = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const Curriculum::Draw d = c.draw(kRandom, i);
    const auto difficulty = static_cast<double>(d.difficulty);
    const auto rate = static_cast<double>(solved(middle, 1, difficulty, 16, index)) / 16;
    c.report(d, rate);
    if (rate > 0 && rate < 1 && difficulty > middle - 1) middle += 0.02;  // learns at its own edge
    if (i > 200) {
      EXPECT_NEAR(static_cast<double>(c.difficulty(0)), middle, 3) << i;
    }
  }
  EXPECT_GT(middle, 10);
}

TEST(Calibration, FindsTheDifficultyThatHalfOfTheSamplesSolve) {
  for (const double middle : {0.5, 4.0, 9.0, 25.0})
    for (const double scale : {0.5, 2.0}) {
      DifficultyCalibration calibration(Random(3, RandomPurpose::test, 11));
      uint64_t index = 0;
      for (int round = 0; round < 24; ++round) {
        const int64_t d = calibration.propose(0, 100);
        calibration.observe(d, solved(middle, scale, static_cast<double>(d), 16, index), 16);
      }
      EXPECT_NEAR(calibration.half_point(), middle, 1.0) << middle << " " << scale;
    }
}

TEST(Calibration, IsAFunctionOfItsNumbersAndStaysInsideTheRange) {
  DifficultyCalibration one(Random(3, RandomPurpose::test)), other(Random(3, RandomPurpose::test));
  for (int round = 0; round < 8; ++round) {
    const int64_t d = one.propose(2, 6);
    EXPECT_EQ(d, other.propose(2, 6));
    EXPECT_GE(d, 2);
    EXPECT_LE(d, 6);
    one.observe(d, 0, 8), other.observe(d, 0, 8);
  }
  EXPECT_EQ(one.half_point(), other.half_point());
  EXPECT_LT(one.half_point(), 3);  // nothing was solved anywhere
}

}  // namespace
}  // namespace ingot::curriculum_test
