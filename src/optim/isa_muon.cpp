// Muon's elementwise passes: momentum, normalisation, the Newton-Schulz polynomial, the weight update; see
// kernels.h.
#include "optim/kernel_parts.h"
#include "optim/kernels.h"

namespace ingot::INGOT_ISA {
namespace {

inline float rounded(float x) {
  return to_float(to_bf16(x));
}

template <class Copy>
UpdateSums apply(const ApplyChunk& a, Copy* __restrict copy) {
  float* __restrict w = a.master;
  const float* __restrict o = a.update;
  const float decay = a.decay, step = a.step_size;
  float update_sq[kLanes] = {}, weight_sq[kLanes] = {};
  const auto element = [&](int64_t i, float& u, float& s) __attribute__((always_inline)) {
    const float before = w[i];
    const float after = before * decay - step * o[i];
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

UpdateSums apply_chunk(const ApplyChunk& a) {
  return with_copy(a, [&](auto* copy) { return apply(a, copy); });
}

void momentum_chunk(const MomentumChunk& a) {
  const float* __restrict grad = a.grad;
  float* __restrict input = a.input;
  float* __restrict m = a.momentum;
  const float scale = a.grad_scale, beta = a.beta, weight = a.grad_weight;
  if (!m) {
    for (int64_t i = 0; i < a.count; ++i) input[i] = grad[i] * scale;
  } else if (a.nesterov) {
    for (int64_t i = 0; i < a.count; ++i) {
      const float g = weight * (grad[i] * scale);
      m[i] = beta * m[i] + g;
      input[i] = g + beta * m[i];
    }
  } else {
    for (int64_t i = 0; i < a.count; ++i) {
      m[i] = beta * m[i] + weight * (grad[i] * scale);
      input[i] = m[i];
    }
  }
}

void scale_chunk(float* y, const float* x, int64_t count, float s, bool round_bf16) {
  if (round_bf16)
    for (int64_t i = 0; i < count; ++i) y[i] = rounded(s * x[i]);
  else
    for (int64_t i = 0; i < count; ++i) y[i] = s * x[i];
}

void combine_chunk(float* y, const float* x, int64_t count, float b, float c, bool round_bf16) {
  if (round_bf16)
    for (int64_t i = 0; i < count; ++i) y[i] = rounded(rounded(b * x[i]) + rounded(c * y[i]));
  else
    for (int64_t i = 0; i < count; ++i) y[i] = b * x[i] + c * y[i];
}

}  // namespace ingot::INGOT_ISA
