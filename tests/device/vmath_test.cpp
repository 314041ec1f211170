// device/simd/{vmath,reduce}: accuracy against double, special values, the same bits in body, tail, scalar
// and every set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "device/simd/isa.h"
#include "device/simd/vector_functions.h"
#include "device/simd/vmath_scalar.h"

namespace ingot::vmath_test {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// |y - exact| in units of the last place of the exact value.
double ulps(float y, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (y == rounded) return 0;
  if (!std::isfinite(y) || !std::isfinite(rounded)) return 1e9;
  const int exponent = std::max(std::ilogb(exact == 0 ? 1e-45 : exact), -126);
  return std::abs(static_cast<double>(y) - exact) / std::ldexp(1.0, exponent - 23);
}

/// Floats spread evenly over the bit patterns of [low, high], both signs where low < 0.
std::vector<float> sweep(float low, float high) {
  std::vector<float> x;
  for (uint32_t u = 0; u < 0x7F800000u; u += 9973) {
    const auto v = std::bit_cast<float>(u);
    if (v >= low && v <= high) x.push_back(v);
    if (-v >= low && -v <= high) x.push_back(-v);
  }
  for (int i = 0; i <= 20000; ++i)
    x.push_back(std::max(low, -30.0f) + (std::min(high, 30.0f) - std::max(low, -30.0f)) * float(i) / 20000);
  return x;
}

double worst(const std::vector<float>& x, float (*f)(float), double (*exact)(double)) {
  double largest = 0;
  for (const float v : x) {
    const double e = ulps(f(v), exact(v));
    if (e > largest) largest = e;
  }
  return largest;
}

TEST(Vmath, AccuracyAgainstDouble) {
  const double e = worst(sweep(-120, 100), vmath::exp, std::exp);
  const double l = worst(sweep(0, 3.4e38f), vmath::log, std::log);
  const double s = worst(sweep(-100, 100), vmath::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
  const double t = worst(sweep(-100, 100), vmath::tanh, std::tanh);
  const double f = worst(sweep(-100, 100), vmath::erf, std::erf);
  RecordProperty("ulps", std::to_string(e) + " " + std::to_string(l) + " " + std::to_string(s) + " " +
                             std::to_string(t) + " " + std::to_string(f));
  EXPECT_LE(e, 1.0);
  EXPECT_LE(l, 0.8);
  EXPECT_LE(s, 2.2);
  EXPECT_LE(t, 1.2);
  EXPECT_LE(f, 1.5);
}

TEST(Vmath, SpecialValues) {
  const float nan = std::nanf("");
  EXPECT_EQ(vmath::exp(-kInf), 0.0f);
  EXPECT_EQ(vmath::exp(kInf), kInf);
  EXPECT_EQ(vmath::exp(0.0f), 1.0f);
  EXPECT_EQ(vmath::exp(89.0f), kInf);
  EXPECT_EQ(vmath::exp(-104.0f), 0.0f);
  EXPECT_EQ(vmath::exp(1e30f), kInf);
  EXPECT_EQ(vmath::log(0.0f), -kInf);
  EXPECT_EQ(vmath::log(-0.0f), -kInf);
  EXPECT_EQ(vmath::log(kInf), kInf);
  EXPECT_EQ(vmath::log(1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(vmath::log(-1.0f)));
  EXPECT_TRUE(std::isnan(vmath::log(-kInf)));
  EXPECT_EQ(vmath::sigmoid(kInf), 1.0f);
  EXPECT_EQ(vmath::sigmoid(-kInf), 0.0f);
  EXPECT_EQ(vmath::sigmoid(0.0f), 0.5f);
  EXPECT_EQ(vmath::tanh(kInf), 1.0f);
  EXPECT_EQ(vmath::tanh(-kInf), -1.0f);
  EXPECT_EQ(vmath::erf(kInf), 1.0f);
  EXPECT_EQ(vmath::erf(-kInf), -1.0f);
  EXPECT_TRUE(std::signbit(vmath::tanh(-0.0f)));
  EXPECT_TRUE(std::signbit(vmath::erf(-0.0f)));
  for (float (*f)(float) : {vmath::exp, vmath::log, vmath::sigmoid, vmath::tanh, vmath::erf})
    EXPECT_TRUE(std::isnan(f(nan)));
}

using ArrayFn = void (*)(float*, const float*, int64_t);

TEST(Vmath, SameBitsInBodyTailScalarAndEverySet) {
  const Isa before = active_isa();
  std::vector<float> x = sweep(-3.4e38f, 3.4e38f);
  x.insert(x.end(), {kInf, -kInf, 0.0f, -0.0f});
  std::vector<float> y(x.size());
  for (const Isa isa : kEveryIsa) {
    if (!isa_available(isa)) continue;
    force_isa(isa);
    const std::pair<ArrayFn, float (*)(float)> pairs[] = {{INGOT_ISA_CALL(array_exp), vmath::exp},
                                                          {INGOT_ISA_CALL(array_log), vmath::log},
                                                          {INGOT_ISA_CALL(array_sigmoid), vmath::sigmoid},
                                                          {INGOT_ISA_CALL(array_tanh), vmath::tanh},
                                                          {INGOT_ISA_CALL(array_erf), vmath::erf}};
    for (const auto& [array, scalar] : pairs)
      for (const size_t skip : {size_t{0}, x.size() - 13}) {
        array(y.data(), x.data() + skip, static_cast<int64_t>(x.size() - skip));
        for (size_t i = skip; i < x.size(); ++i) {
          const float expected = scalar(x[i]);
          if (std::isnan(expected))
            ASSERT_TRUE(std::isnan(y[i - skip]));
          else
            ASSERT_EQ(std::bit_cast<uint32_t>(y[i - skip]), std::bit_cast<uint32_t>(expected)) << x[i];
        }
      }
  }
  force_isa(before);
}

TEST(Reduce, SameBitsEverywhereAndCloseToDouble) {
  const Isa before = active_isa();
  std::vector<float> a(1000), b(1000);
  const Random random(5, RandomPurpose::test);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = random.normal(i);
    b[i] = random.normal(i + 5000);
  }
  for (const Isa isa : kEveryIsa) {
    if (!isa_available(isa)) continue;
    force_isa(isa);
    for (const int64_t n : {0, 1, 3, 15, 16, 17, 31, 33, 100, 999}) {
      EXPECT_EQ(INGOT_ISA_CALL(array_sum)(a.data(), n), vmath::row_sum(a.data(), n));
      EXPECT_EQ(INGOT_ISA_CALL(array_dot)(a.data(), b.data(), n), vmath::row_dot(a.data(), b.data(), n));
      EXPECT_EQ(INGOT_ISA_CALL(array_max)(a.data(), n), vmath::row_max(a.data(), n));
      double sum = 0, largest = -kInf;
      for (int64_t i = 0; i < n; ++i) {
        sum += a[static_cast<size_t>(i)];
        largest = std::max<double>(largest, a[static_cast<size_t>(i)]);
      }
      EXPECT_NEAR(vmath::row_sum(a.data(), n), sum, 1e-4);
      EXPECT_EQ(vmath::row_max(a.data(), n), largest);
    }
  }
  force_isa(before);
}

}  // namespace ingot::vmath_test
