// AdamW of one element: the text of the kernels of every instruction set and of GPUs; formula: adamw.h.
#pragma once
#include "device/simd/simd.h"
#include "optim/kernels.h"

namespace ingot::INGOT_ISA {

/// What all elements of a chunk share.
struct AdamWFactors {
  float scale, decay, c1, b2, c2, correction, eps, step, c3, alpha;
};
INGOT_INLINE AdamWFactors factors_of(const AdamWChunk& a) {
  return {a.grad_scale,           a.decay, a.one_minus_beta1, a.beta2,           a.one_minus_beta2,
          a.inv_sqrt_correction2, a.eps,   a.step_size,       a.one_minus_beta3, a.alpha};
}

/// The new weight; `slow` is looked at where `mixing`.
template <bool mixing>
INGOT_INLINE float adamw_element(const AdamWFactors& f, float grad, float before, float& m, float& v,
                                 float* slow) {
  const float g = grad * f.scale;
  const float m1 = m + f.c1 * (g - m);
  const float v1 = v * f.b2 + (f.c2 * g) * g;
  float direction = m1;
  if constexpr (mixing) {
    const float s1 = *slow + f.c3 * (g - *slow);
    *slow = s1;
    direction = m1 + f.alpha * s1;
  }
  m = m1;
  v = v1;
  return before * f.decay - f.step * (direction / (square_root(v1) * f.correction + f.eps));
}

}  // namespace ingot::INGOT_ISA
