// Overlap of experts: equal experts 1, experts with nothing in common 0, random ones the share of the
// directions.
#include "eval/expert_overlap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/philox.h"
#include "support/imported.h"

namespace ingot::test::expert_overlap_test {

std::vector<float> random_matrix(int64_t count, int64_t width, uint64_t stream) {
  const Random random(3, RandomPurpose::test, stream);
  std::vector<float> m(static_cast<size_t>(count * width));
  for (size_t i = 0; i < m.size(); ++i) m[i] = static_cast<float>(random.normal(i));
  return m;
}

/// sum of strength_i u_i v_i^T with the unit vectors v_i of `axes` turned by a rotation in each pair of
/// axes.
std::vector<float> planted(int64_t count, int64_t width, const std::vector<int64_t>& axes) {
  std::vector<float> m(static_cast<size_t>(count * width));
  const std::vector<float> u = random_matrix(count, static_cast<int64_t>(axes.size()), 5);
  for (size_t i = 0; i < axes.size(); ++i)
    for (int64_t r = 0; r < count; ++r)
      for (const auto& [axis, part] : {std::pair(axes[i], 0.8f), std::pair((axes[i] + 1) % width, 0.6f)})
        m[static_cast<size_t>(r * width + axis)] += 10 * part * u[static_cast<size_t>(r) * axes.size() + i];
  return m;
}

TEST(ExpertOverlap, DirectionsAreThePlantedOnes) {
  const LeadingDirections found = leading_directions(planted(40, 24, {2, 8, 15}).data(), 40, 24, 3);
  EXPECT_NEAR(found.variance, 1, 1e-5);
  for (const int64_t axis : {2, 8, 15}) {  // the planted vector lies in the span
    double inside = 0;
    for (int i = 0; i < 3; ++i) {
      const float* q = found.rows.data() + i * 24;
      inside += std::pow(0.8 * q[axis] + 0.6 * q[axis + 1], 2);
    }
    EXPECT_NEAR(inside, 1, 1e-4) << axis;
  }
  // All directions of a matrix: all of the variance, and an orthonormal basis.
  const LeadingDirections all = leading_directions(random_matrix(9, 7, 1).data(), 9, 7, 7);
  EXPECT_NEAR(all.variance, 1, 1e-5);
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < 7; ++j) {
      double dot = 0;
      for (int k = 0; k < 7; ++k) dot += all.rows[i * 7 + k] * all.rows[j * 7 + k];
      EXPECT_NEAR(dot, i == j, 1e-5);
    }
  const std::vector<float> zero(30);
  EXPECT_EQ(leading_directions(zero.data(), 5, 6, 2).variance, 0);
}

TEST(ExpertOverlap, EqualOnesOverlapWhollyAndRandomOnesByChance) {
  constexpr int64_t kWidth = 64, kDirections = 4;
  const auto directions = [&](uint64_t stream) {
    return leading_directions(random_matrix(96, kWidth, stream).data(), 96, kWidth, kDirections);
  };
  const OverlapSide equal = overlap_of({directions(1), directions(1), directions(1)}, kWidth);
  EXPECT_NEAR(equal.mean, 1, 1e-4);
  EXPECT_NEAR(equal.deviation, 0, 1e-3);
  EXPECT_NEAR(equal.rho, kWidth / kDirections, 1e-2);
  std::vector<LeadingDirections> random;
  for (uint64_t e = 0; e < 24; ++e) random.push_back(directions(e));
  const OverlapSide independent = overlap_of(random, kWidth);
  EXPECT_NEAR(independent.rho, 1, 0.1);  // 276 pairs, each with a deviation of about a third
  EXPECT_GT(independent.deviation, 0);
  const auto axes = [&](std::vector<int64_t> of) {
    return leading_directions(planted(40, 24, of).data(), 40, 24, static_cast<int64_t>(of.size()));
  };
  EXPECT_NEAR(overlap_of({axes({2, 8}), axes({12, 18})}, 24).mean, 0, 1e-5) << "nothing in common";
  EXPECT_NEAR(overlap_of({axes({2, 8}), axes({8, 18})}, 24).mean, 0.5, 1e-4) << "one of two";
}

TEST(ExpertOverlap, OfAModelOnDisk) {
  const TempDir dir;
  generation_fixture(dir, "zaya");
  const ShellResult found = shell(dir, "$INGOT eval experts $DIR/zaya --json -");
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const nlohmann::json layers = found.json();
  ASSERT_GE(layers.size(), 1u);
  for (const auto& layer : layers) {
    EXPECT_GE(layer["experts"], 2);
    for (const char* side : {"input_overlap", "output_overlap"}) {
      EXPECT_GT(layer[side], 0);
      EXPECT_LT(layer[side], 1);
    }
  }
  const ShellResult many = shell(dir, "$INGOT eval experts $DIR/zaya --directions 1000");
  EXPECT_EQ(many.exit_code, 1);
  EXPECT_NE(many.err.find("give --directions up to"), std::string::npos) << many.err;
  generation_fixture(dir, "llama");
  const ShellResult dense = shell(dir, "$INGOT eval experts $DIR/llama");
  EXPECT_EQ(dense.exit_code, 1);
  EXPECT_NE(dense.err.find("has several experts"), std::string::npos) << dense.err;
}

}  // namespace ingot::test::expert_overlap_test
