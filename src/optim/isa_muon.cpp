// Muon's elementwise passes: momentum, normalisation, the Newton-Schulz polynomial, the weight update; see
// kernels.h.
#include "optim/kernel_parts.h"
#include "optim/kernels.h"
#include "optim/muon_element.h"
#include "optim/stored_parts.h"

namespace ingot::INGOT_ISA {
namespace {

inline float rounded(float x) {
  return to_float(to_bf16(x));
}

template <class Copy>
UpdateSums apply(const ApplyChunk& a, int64_t begin, int64_t count, float* __restrict w,
                 Copy* __restrict copy) {
  const float* __restrict o = a.update + begin;
  const float decay = a.decay, step = a.step_size;
  float update_sq[kSumLanes] = {}, weight_sq[kSumLanes] = {};
  const auto element = [&](int64_t i, float& u, float& s) __attribute__((always_inline)) {
    const float before = w[i];
    const float after = applied_element(before, o[i], decay, step);
    w[i] = after;
    store(copy, begin + i, after);
    const float d = after - before;
    u += d * d;
    s += after * after;
  };
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes)
    for (int64_t l = 0; l < kSumLanes; ++l) element(i + l, update_sq[l], weight_sq[l]);
  for (int64_t l = 0; i + l < count; ++l) element(i + l, update_sq[l], weight_sq[l]);
  return {sum_lanes(update_sq), sum_lanes(weight_sq)};
}

void momentum_block(const MomentumChunk& a, int64_t begin, int64_t count, float* __restrict m,
                    const float* __restrict grad) {
  float* __restrict input = a.input + begin;
  const float scale = a.grad_scale, beta = a.beta, weight = a.grad_weight;
  if (!m) {
    for (int64_t i = 0; i < count; ++i) input[i] = grad[i] * scale;
  } else if (a.nesterov) {
    for (int64_t i = 0; i < count; ++i) input[i] = momentum_element<true>(grad[i], scale, beta, weight, m[i]);
  } else {
    for (int64_t i = 0; i < count; ++i)
      input[i] = momentum_element<false>(grad[i], scale, beta, weight, m[i]);
  }
}

}  // namespace

UpdateSums apply_chunk(const ApplyChunk& a) {
  const int64_t block = a.master.is_bf16 ? kStoredBlock : a.count;
  UpdateSums sums;
  StoredBlock weight;
  for (int64_t at = 0; at < a.count; at += block) {
    const int64_t count = at + block < a.count ? block : a.count - at;
    float* w = weight.open(a.master, at, count);
    const UpdateSums s = with_copy(a, [&](auto* copy) { return apply(a, at, count, w, copy); });
    weight.close(a.master, at, count);
    sums.update_sq += s.update_sq;
    sums.weight_sq += s.weight_sq;
  }
  return sums;
}

void momentum_chunk(const MomentumChunk& a) {
  const int64_t block = a.momentum.is_bf16 || a.grad.is_bf16 ? kStoredBlock : a.count;
  StoredBlock momentum, grad;
  for (int64_t at = 0; at < a.count; at += block) {
    const int64_t count = at + block < a.count ? block : a.count - at;
    momentum_block(a, at, count, momentum.open(a.momentum, at, count), grad.open(a.grad, at, count));
    momentum.close(a.momentum, at, count);
  }
}

void scale_chunk(float* y, const float* x, int64_t count, float s) {
  for (int64_t i = 0; i < count; ++i) y[i] = s * x[i];
}

void combine_chunk(float* y, const float* x, int64_t count, float b, float c) {
  for (int64_t i = 0; i < count; ++i) y[i] = b * x[i] + c * y[i];
}

void round_chunk(bf16* __restrict y, const float* __restrict x, int64_t count, float s) {
  for (int64_t i = 0; i < count; ++i) y[i] = to_bf16(s * x[i]);
}

void widen_chunk(float* __restrict y, const bf16* __restrict x, int64_t count, float s) {
  for (int64_t i = 0; i < count; ++i) y[i] = s * to_float(x[i]);
}

void combine_bf16_chunk(bf16* __restrict p, const bf16* __restrict x, const float* __restrict y,
                        int64_t count, float b, float c) {
  for (int64_t i = 0; i < count; ++i)
    p[i] = to_bf16(rounded(b * to_float(x[i])) + rounded(c * rounded(y[i])));
}

}  // namespace ingot::INGOT_ISA
