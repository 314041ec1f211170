// A row of scores against a block of 64 keys: what becomes of it in forward and backward. The text of the
// kernels of every instruction set and of GPUs.
#pragma once
#include "device/attention/attention.h"
#include "device/simd/reduce.h"
#include "device/simd/vmath.h"

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_gpu)
#define INGOT_UNROLL_VECTORS INGOT_UNROLL
#else
#define INGOT_UNROLL_VECTORS _Pragma("GCC unroll 4")
#endif

constexpr int kAttentionBlockVecs = kAttentionBlock / kLanes;

INGOT_INLINE Vec lane_numbers() {
#if defined(INGOT_ISA_gpu)
  return four_floats([](int i) { return static_cast<float>(first_lane() + i); });
#else
  alignas(64) static constexpr float kNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load(kNumbers);
#endif
}

/// vexp(x), bit for bit, of an x that is at most 44; of a larger one nonsense, which the caller masks. The
/// power of two takes half of the operations, because n + 64 needs no case apart.
INGOT_INLINE Vec exp_below(Vec x) {
  x = max(set1(-104.0f), x);
  const Vec magic = set1(12582912.0f);
  const Vec t = fma(x, set1(1.44269504f), magic);
  const Vec nf = t - magic;
  Vec r = fma(nf, set1(-0.693359375f), x);
  r = fma(nf, set1(2.1219444e-4f), r);
  Vec p = set1(0.001392618359f);
  p = fma(p, r, set1(0.008363179053f));
  p = fma(p, r, set1(0.04166655462f));
  p = fma(p, r, set1(0.1666657699f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r * r, r) + set1(1.0f);
  const Vec power = as_float(shift_left<23>(as_int(t)) + set1i((127 + 64) << 23));  // 2^(n + 64)
  return p * power * set1(0x1p-64f);
}

/// The visible keys of a row within a block: low <= index <= high. Both grow with the row.
struct Visible {
  int64_t low, high;
};

/// Whether all rows of a tile see each of the block's first `keys` keys.
INGOT_INLINE bool all_visible(Visible first_row, Visible last_row, int64_t keys) {
  return last_row.low <= 0 && first_row.high >= keys - 1;
}

/// x where first + lane lies in the visible range, else `hidden`.
INGOT_INLINE Vec mask_keys(Vec x, int64_t first, Visible keys, Vec hidden) {
  const Vec index = lane_numbers() + set1(static_cast<float>(first));
  const Vec below = select(index < set1(static_cast<float>(keys.low)), hidden, x);
  return select(set1(static_cast<float>(keys.high)) < index, hidden, below);
}

/// s = cap(scale * (q . k)).
struct ScoreRule {
  float scale, softcap;  ///< no cap: 0
};

template <bool kCap>
INGOT_INLINE Vec scaled(const ScoreRule& rule, Vec score) {
  const Vec x = score * set1(rule.scale);
  return kCap ? vtanh(x / set1(rule.softcap)) * set1(rule.softcap) : x;
}

/// Scales, caps and masks the scores of one row; returns their maximum. kAll: every key is seen, all vectors
/// there.
template <bool kCap, bool kAll>
INGOT_INLINE float mask_row(const ScoreRule& rule, float* s, int vecs, Visible keys) {
  const float lowest = -__builtin_inff();
  Vec top = set1(lowest);
  INGOT_UNROLL_VECTORS
  for (int v = 0; v < (kAll ? kAttentionBlockVecs : vecs); ++v) {
    Vec x = scaled<kCap>(rule, load(s + v * kLanes));
    if (!kAll) x = mask_keys(x, v * kLanes, keys, set1(lowest));
    store(s + v * kLanes, x);
    top = max(top, x);
  }
  return reduce_max(top);
}

/// Makes probabilities of masked scores, relative to `base`; returns their sums by lanes.
template <bool kAll>
INGOT_INLINE Lanes exp_row(float* s, int vecs, float base) {
  const Vec shift = set1(base);
  Lanes total = lanes(0.0f);
  INGOT_UNROLL_VECTORS
  for (int v = 0; v < (kAll ? kAttentionBlockVecs : vecs); ++v) {
    const Vec p = exp_below(load(s + v * kLanes) - shift);
    store(s + v * kLanes, p);
    total.v[v % kLaneVecs] = total.v[v % kLaneVecs] + p;
  }
  return total;
}

/// Of keys that are seen: exp(s - lse), and d s / d (q . k).
struct Probability {
  Vec p, slope;
};
template <bool kCap>
INGOT_INLINE Probability probability_of(const ScoreRule& rule, Vec score, Vec lse) {
  const Vec scale = set1(rule.scale);
  Vec x = score * scale;
  Vec slope = scale;
  if (kCap) {
    const Vec t = vtanh(x / set1(rule.softcap));
    x = t * set1(rule.softcap);
    slope = slope * (set1(1.0f) - t * t);
  }
  return {exp_below(x - lse), slope};
}

/// Probabilities, and the gradients of their unscaled scores.
struct ProbabilityGradients {
  Vec p, d_s;
};

/// Of the keys from `first` on; from q . k, and d_p = dO . v.
template <bool kCap, bool kAll>
INGOT_INLINE ProbabilityGradients gradients_of(const ScoreRule& rule, Vec score, Vec d_p, int first,
                                               Visible keys, float lse, float delta) {
  Probability is = probability_of<kCap>(rule, score, set1(lse));
  if (!kAll) is.p = mask_keys(is.p, first, keys, zero());
  return {is.p, is.p * (d_p - set1(delta)) * is.slope};
}

}  // namespace ingot::INGOT_ISA
