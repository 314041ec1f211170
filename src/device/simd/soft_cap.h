// The soft cap of output logits, for the head's statistics and for sampling:
//   l = shift + cap tanh(z / divisor),  dl/dz = (cap / divisor) (1 - ((l - shift) / cap)^2);  cap 0: l = z
// Gemma 2's final cap has divisor = cap and shift 0; modded-nanogpt's A sigmoid(z / B) is A/2 + A/2 tanh(z /
// 2B).
#pragma once
#include <cmath>
#ifdef INGOT_ISA
#include "device/simd/vmath.h"
#endif

namespace ingot {

/// The constants in fp32, as kernels take them.
struct SoftCapFactors {
  float cap = 0, inverse_divisor = 1, shift = 0;
};

struct SoftCap {
  double cap = 0;
  double divisor = 1;
  double shift = 0;

  bool on() const { return cap > 0; }
  double value(double z) const { return on() ? shift + cap * std::tanh(z / divisor) : z; }
  /// dl/dz at the capped value l.
  double slope(double l) const {
    const double u = (l - shift) / cap;
    return on() ? cap / divisor * (1 - u * u) : 1;
  }
  SoftCapFactors factors() const {
    return {static_cast<float>(cap), static_cast<float>(1 / divisor), static_cast<float>(shift)};
  }
};

#ifdef INGOT_ISA  // kernel files; see simd.h for the rules
namespace INGOT_ISA {
INGOT_INLINE Vec soft_cap(const SoftCapFactors& f, Vec z) {
  return fma(vtanh(z * set1(f.inverse_divisor)), set1(f.cap), set1(f.shift));
}
/// Logits from the products that they are: capped where the cap is above 0, and times `scale`.
INGOT_INLINE Vec capped_and_scaled(const SoftCapFactors& f, float scale, Vec z) {
  if (f.cap > 0) z = soft_cap(f, z);
  return scale != 1 ? z * set1(scale) : z;
}
/// dl/dz at the capped value l.
INGOT_INLINE Vec soft_cap_slope(const SoftCapFactors& f, Vec l) {
  const Vec u = (l - set1(f.shift)) * set1(1.0f / f.cap);
  return (set1(1.0f) - u * u) * set1(f.cap * f.inverse_divisor);
}
}  // namespace INGOT_ISA
#endif

}  // namespace ingot
