// AdamW's fused pass and the sum of squares for clipping; see kernels.h.
#include "optim/kernel_parts.h"
#include "optim/kernels.h"
#include "optim/moment_parts.h"

namespace ingot::INGOT_ISA {
namespace {

/// The moments of `count` elements from `begin` on, as floats; `slow` is null for AdamW.
struct Moments {
  float* fast;
  float* square;
  float* slow;
};

template <bool mixing, class Copy>
UpdateSums adamw(const AdamWChunk& a, int64_t begin, int64_t count, const Moments& moments,
                 Copy* __restrict copy) {
  float* __restrict w = a.master + begin;
  const float* __restrict grad = a.grad + begin;
  float* __restrict m = moments.fast;
  float* __restrict v = moments.square;
  float* __restrict slow = moments.slow;
  const float scale = a.grad_scale, decay = a.decay, c1 = a.one_minus_beta1, b2 = a.beta2,
              c2 = a.one_minus_beta2;
  const float correction = a.inv_sqrt_correction2, eps = a.eps, step = a.step_size;
  const float c3 = a.one_minus_beta3, alpha = a.alpha;
  float update_sq[kLanes] = {}, weight_sq[kLanes] = {};
  const auto element = [&](int64_t i, float& u, float& s) __attribute__((always_inline)) {
    const float g = grad[i] * scale;
    const float m1 = m[i] + c1 * (g - m[i]);
    const float v1 = v[i] * b2 + (c2 * g) * g;
    float direction = m1;
    if constexpr (mixing) {
      const float s1 = slow[i] + c3 * (g - slow[i]);
      slow[i] = s1;
      direction = m1 + alpha * s1;
    }
    const float before = w[i];
    const float after = before * decay - step * (direction / (__builtin_sqrtf(v1) * correction + eps));
    m[i] = m1;
    v[i] = v1;
    w[i] = after;
    store(copy, begin + i, after);
    const float d = after - before;
    u += d * d;
    s += after * after;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) element(i + l, update_sq[l], weight_sq[l]);
  for (int64_t l = 0; i + l < count; ++l) element(i + l, update_sq[l], weight_sq[l]);
  return {sum_lanes(update_sq), sum_lanes(weight_sq)};
}

UpdateSums adamw_any(const AdamWChunk& a, int64_t begin, int64_t count, const Moments& moments) {
  return with_copy(a, [&](auto* copy) {
    return moments.slow ? adamw<true>(a, begin, count, moments, copy)
                        : adamw<false>(a, begin, count, moments, copy);
  });
}

}  // namespace

UpdateSums adamw_chunk(const AdamWChunk& a) {
  const bool floats = !a.exp_avg.is_bf16 && !a.exp_avg_sq.is_bf16 && !a.exp_avg_slow.is_bf16;
  const int64_t block = floats ? a.count : kMomentBlock;
  UpdateSums sums;
  MomentBlock fast, square, slow;
  for (int64_t at = 0; at < a.count; at += block) {
    const int64_t count = at + block < a.count ? block : a.count - at;
    const UpdateSums s = adamw_any(a, at, count,
                                   {fast.open(a.exp_avg, at, count), square.open(a.exp_avg_sq, at, count),
                                    slow.open(a.exp_avg_slow, at, count)});
    fast.close(a.exp_avg, at, count);
    square.close(a.exp_avg_sq, at, count);
    slow.close(a.exp_avg_slow, at, count);
    sums.update_sq += s.update_sq;
    sums.weight_sq += s.weight_sq;
  }
  return sums;
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
