// The soft cap of output logits (ops/soft_cap.h) for kernel files; see simd.h for the rules.
#pragma once
#include "device/cpu/soft_cap_factors.h"
#include "device/cpu/vmath.h"

namespace ingot::INGOT_ISA {

INGOT_INLINE Vec soft_cap(const SoftCapFactors& f, Vec z) {
  return fma(vtanh(z * set1(f.inverse_divisor)), set1(f.cap), set1(f.shift));
}
/// Derivative at the capped value l.
INGOT_INLINE Vec soft_cap_slope(const SoftCapFactors& f, Vec l) {
  const Vec u = (l - set1(f.shift)) * set1(1.0f / f.cap);
  return (set1(1.0f) - u * u) * set1(f.cap * f.inverse_divisor);
}

}  // namespace ingot::INGOT_ISA
