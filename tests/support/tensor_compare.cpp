// See tensor_compare.h.
#include "support/tensor_compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/reference.h"

namespace ingot::test {

using reference::Array;

void expect_close(const Tensor& found, const Tensor& expected, double tolerance, const std::string& what) {
  const Array a = reference::load(found), b = reference::load(expected);
  ASSERT_EQ(a.size(), b.size()) << what;
  double scale = 1e-30, worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(std::isfinite(a[i]) == std::isfinite(b[i]))
        << what << " element " << i << ": " << a[i] << " vs " << b[i];
    if (!std::isfinite(b[i])) continue;
    scale = std::max(scale, std::abs(b[i]));
    worst = std::max(worst, std::abs(a[i] - b[i]));
  }
  if (found.dtype() == DType::bf16) tolerance = std::max(tolerance, 1.0 / 200);
  EXPECT_LE(worst / scale, tolerance)
      << what << ": max |difference| " << worst << ", max |reference| " << scale;
}

void expect_same_bits(const Tensor& a, const Tensor& b, int64_t bytes, const std::string& what) {
  EXPECT_EQ(0, std::memcmp(a.data, b.data, static_cast<size_t>(bytes))) << what << ": bits differ";
}

void expect_near(const Tensor& found, const Tensor& expected, const Nearness& near, const std::string& what) {
  if (!is_floating(found.dtype())) return expect_same_bits(found, expected, found.bytes(), what);
  const double tolerance = found.dtype() == DType::bf16
                               ? std::ldexp(near.roundings, -8)
                               : std::ldexp(std::sqrt(static_cast<double>(near.k)), -14);
  if (near.of_case > tolerance) return expect_close(found, expected, near.of_case, what);
  const Array a = reference::load(found), b = reference::load(expected);
  const size_t width = near.by_row ? static_cast<size_t>(found.shape()[-1]) : b.size();
  for (size_t row = 0; row < b.size(); row += width) {
    double scale = 0, worst = 0;
    for (size_t i = row; i < row + width; ++i) {
      ASSERT_TRUE(std::isfinite(a[i])) << what << " element " << i;
      scale = std::max(scale, std::abs(b[i]));
      worst = std::max(worst, std::abs(a[i] - b[i]));
    }
    ASSERT_LE(worst, tolerance * scale) << what << ": row " << row / width;
  }
}

}  // namespace ingot::test
