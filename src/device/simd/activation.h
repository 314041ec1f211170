// The nonlinearities of an MLP and their slopes, for rows and for products that activate what they store.
// Formulas: ops/activation/reference.cpp; gelu_tanh uses (1 + tanh u) / 2 = sigmoid(2 u), which is as
// accurate for negative x as for positive.
#pragma once
#include "device/simd/soft_cap.h"

namespace ingot {

enum class ActivationFunction { gelu, gelu_tanh, relu2, silu, soft_cap };

#ifdef INGOT_ISA  // kernel files; see simd.h for the rules
namespace INGOT_ISA {
struct ValueAndSlope {
  Vec f, df;
};

/// The slope is computed only where it is used: everything here is inlined.
template <ActivationFunction F>
INGOT_INLINE ValueAndSlope evaluate(const SoftCapFactors& cap, Vec x) {
  const Vec one = set1(1.0f);
  if constexpr (F == ActivationFunction::gelu) {
    const Vec half = set1(0.5f);
    const Vec cdf = fma(half, verf(x * set1(0.70710678f)), half);
    return {x * cdf, fma(x * set1(0.39894228f), vexp(x * x * set1(-0.5f)), cdf)};
  } else if constexpr (F == ActivationFunction::gelu_tanh) {
    const Vec square = x * x;
    const Vec s = vsigmoid(x * fma(square, set1(0.071354816f), set1(1.5957691f)));
    const Vec slope = fma(square, set1(0.21406445f), set1(1.5957691f));
    const Vec f = x * s;
    return {f, fma(f * (one - s), slope, s)};
  } else if constexpr (F == ActivationFunction::relu2) {
    const Vec m = max(zero(), x);
    return {m * m, m + m};
  } else if constexpr (F == ActivationFunction::soft_cap) {
    const Vec l = soft_cap(cap, x);
    return {l, soft_cap_slope(cap, l)};
  } else {
    const Vec s = vsigmoid(x), f = x * s;
    return {f, fma(f, one - s, s)};
  }
}
}  // namespace INGOT_ISA
#endif

}  // namespace ingot
