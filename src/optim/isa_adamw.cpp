// AdamW's fused pass and the sum of squares for clipping; see kernels.h.
#include "optim/kernel_parts.h"
#include "optim/kernels.h"

namespace ingot::INGOT_ISA {
namespace {

template <class Copy>
UpdateSums adamw(const AdamWChunk& a, Copy* __restrict copy) {
  float* __restrict w = a.master;
  const float* __restrict grad = a.grad;
  float* __restrict m = a.exp_avg;
  float* __restrict v = a.exp_avg_sq;
  const float scale = a.grad_scale, decay = a.decay, c1 = a.one_minus_beta1, b2 = a.beta2,
              c2 = a.one_minus_beta2;
  const float correction = a.inv_sqrt_correction2, eps = a.eps, step = a.step_size;
  float update_sq[kLanes] = {}, weight_sq[kLanes] = {};
  const auto element = [&](int64_t i, float& u, float& s) __attribute__((always_inline)) {
    const float g = grad[i] * scale;
    const float m1 = m[i] + c1 * (g - m[i]);
    const float v1 = v[i] * b2 + (c2 * g) * g;
    const float before = w[i];
    const float after = before * decay - step * (m1 / (__builtin_sqrtf(v1) * correction + eps));
    m[i] = m1;
    v[i] = v1;
    w[i] = after;
    store(copy, i, after);
    const float d = after - before;
    u += d * d;
    s += after * after;
  };
  int64_t i = 0;
  for (; i + kLanes <= a.count; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) element(i + l, update_sq[l], weight_sq[l]);
  for (int64_t l = 0; i + l < a.count; ++l) element(i + l, update_sq[l], weight_sq[l]);
  return {sum_lanes(update_sq), sum_lanes(weight_sq)};
}

}  // namespace

UpdateSums adamw_chunk(const AdamWChunk& a) {
  return with_copy(a, [&](auto* copy) { return adamw(a, copy); });
}

double sum_squares_chunk(const float* x, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) {
      const double value = x[i + l];
      lanes[l] += value * value;
    }
  for (int64_t l = 0; i + l < count; ++l) {
    const double value = x[i + l];
    lanes[l] += value * value;
  }
  return sum_lanes(lanes);
}

}  // namespace ingot::INGOT_ISA
