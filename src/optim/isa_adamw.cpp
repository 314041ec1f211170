// AdamW's fused pass and the sum of squares for clipping; see kernels.h.
#include "optim/adamw_element.h"
#include "optim/kernel_parts.h"
#include "optim/kernels.h"
#include "optim/stored_parts.h"

namespace ingot::INGOT_ISA {
namespace {

/// Weights, gradients and moments of some elements, as floats; `slow` is null for AdamW.
struct Values {
  float* weight;
  const float* grad;
  float* fast;
  float* square;
  float* slow;
};

template <bool mixing, class Copy>
UpdateSums adamw(const AdamWChunk& a, int64_t begin, int64_t count, const Values& values,
                 Copy* __restrict copy) {
  float* __restrict w = values.weight;
  const float* __restrict grad = values.grad;
  float* __restrict m = values.fast;
  float* __restrict v = values.square;
  float* __restrict slow = values.slow;
  const AdamWFactors factors = factors_of(a);
  float update_sq[kSumLanes] = {}, weight_sq[kSumLanes] = {};
  const auto element = [&](int64_t i, float& u, float& s) __attribute__((always_inline)) {
    const float before = w[i];
    const float after =
        adamw_element<mixing>(factors, grad[i], before, m[i], v[i], mixing ? slow + i : nullptr);
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

UpdateSums adamw_any(const AdamWChunk& a, int64_t begin, int64_t count, const Values& values) {
  return with_copy(a, [&](auto* copy) {
    return values.slow ? adamw<true>(a, begin, count, values, copy)
                       : adamw<false>(a, begin, count, values, copy);
  });
}

}  // namespace

UpdateSums adamw_chunk(const AdamWChunk& a) {
  const bool floats = !a.master.is_bf16 && !a.grad.is_bf16 && !a.exp_avg.is_bf16 && !a.exp_avg_sq.is_bf16 &&
                      !a.exp_avg_slow.is_bf16;
  const int64_t block = floats ? a.count : kStoredBlock;
  UpdateSums sums;
  StoredBlock weight, grad, fast, square, slow;
  for (int64_t at = 0; at < a.count; at += block) {
    const int64_t count = at + block < a.count ? block : a.count - at;
    const UpdateSums s = adamw_any(
        a, at, count,
        {weight.open(a.master, at, count), grad.open(a.grad, at, count), fast.open(a.exp_avg, at, count),
         square.open(a.exp_avg_sq, at, count), slow.open(a.exp_avg_slow, at, count)});
    weight.close(a.master, at, count);
    fast.close(a.exp_avg, at, count);
    square.close(a.exp_avg_sq, at, count);
    slow.close(a.exp_avg_slow, at, count);
    sums.update_sq += s.update_sq;
    sums.weight_sq += s.weight_sq;
  }
  return sums;
}

double sum_squares_chunk(const float* x, int64_t count) {
  double lanes[kSumLanes] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes)
    for (int64_t l = 0; l < kSumLanes; ++l) {
      const double value = x[i + l];
      lanes[l] += value * value;
    }
  for (int64_t l = 0; i + l < count; ++l) {
    const double value = x[i + l];
    lanes[l] += value * value;
  }
  return sum_lanes(lanes);
}

double sum_squares_of_stored(const StoredPart& x, int64_t count) {
  if (!x.is_bf16) return sum_squares_chunk(static_cast<const float*>(x.data), count);
  double sum = 0;
  StoredBlock values;
  for (int64_t at = 0; at < count; at += kStoredBlock) {
    const int64_t n = at + kStoredBlock < count ? kStoredBlock : count - at;
    sum += sum_squares_chunk(values.open(x, at, n), n);
  }
  return sum;
}

void load_values(float* to, const StoredPart& from, int64_t count) {
  if (from.is_bf16) return load_stored(to, from, 0, count);
  const float* values = static_cast<const float*>(from.data);
  for (int64_t i = 0; i < count; ++i) to[i] = values[i];
}

void store_values(const StoredPart& to, const float* from, int64_t count) {
  if (to.is_bf16) return store_stored(to, 0, count, from);
  float* values = static_cast<float*>(to.data);
  for (int64_t i = 0; i < count; ++i) values[i] = from[i];
}

}  // namespace ingot::INGOT_ISA
