// head's work on rows of logits: the text of the kernels of every instruction set and of GPUs. Sums over the
// vocabulary use the 16 virtual lanes of reduce.h.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/prefetch.h"
#include "device/simd/reduce.h"
#include "device/simd/soft_cap.h"
#include "device/simd/vmath.h"
#include "ops/head/isa_head.h"

namespace ingot::INGOT_ISA {
namespace {

/// Sum of f(first of 16 elements, vector of the lanes, elements left) over n elements.
template <class F>
INGOT_INLINE float lane_sum(int64_t n, F&& f) {
  Lanes acc = lanes(0.0f);
  int64_t j = 0;
  for (; j + kVirtualLanes <= n; j += kVirtualLanes)
    for (int i = 0; i < kLaneVecs; ++i) acc.v[i] = acc.v[i] + f(j, i, kVirtualLanes);
  if (j < n)
    for (int i = 0; i < kLaneVecs; ++i) acc.v[i] = acc.v[i] + f(j, i, static_cast<int>(n - j));
  return tree_sum(acc);
}

struct Largest {
  float value;
  int32_t index;  ///< the lowest of equals
};

INGOT_INLINE Largest largest(const float* x, int64_t n) {
  constexpr int64_t kBlock = 256;  // only the block of the maximum is searched for its place
  Largest top{-__builtin_inff(), 0};
  int64_t block = 0;
  for (int64_t j = 0; j < n; j += kBlock) {
    const float m = row_max(x + j, n - j < kBlock ? n - j : kBlock);
    if (m > top.value) top.value = m, block = j;
  }
  for (int64_t j = block; j < n && j < block + kBlock; ++j)
    if (x[j] == top.value) {
      top.index = static_cast<int32_t>(j);
      break;
    }
  return top;
}

INGOT_INLINE float log_of(float x) {
  return any_lane(vlog(set1(x)));
}

/// sum p (l - lse), p = exp(l - lse); impossible tokens (l = -inf) add nothing.
INGOT_INLINE float minus_entropy(const float* l, float lse, int64_t n) {
  return lane_sum(n, [&](int64_t j, int i, int rest) {
    const Vec d = load_rest(l + j, i, rest, -__builtin_inff()) - set1(lse);
    return select(d < set1(-3.4e38f), zero(), vexp(d) * d);
  });
}

/// sum q (log q - l + lse) over q > 0.
INGOT_INLINE float divergence(const float* q, const float* l, float lse, int64_t n) {
  return lane_sum(n, [&](int64_t j, int i, int rest) {
    const Vec teacher = load_rest(q + j, i, rest), logit = load_rest(l + j, i, rest);
    return select(teacher > zero(), teacher * (vlog(teacher) - (logit - set1(lse))), zero());
  });
}

/// Element by element in ascending order, so that the row may take the place of its logits, and rounded once.
template <class T>
INGOT_INLINE void d_logits_row(const HeadCotangents& p, T* d, int64_t t) {
  const int64_t n = p.vocabulary, target = p.targets[t];
  const float* l = p.logits + t * p.stride;
  if (target < 0) return each_vector(n, [&](int64_t i, int count) { store_n(d + i, zero(), count); });
  const float lse = p.lse[t];
  const float d_logprob = p.d_logprob != nullptr ? p.d_logprob[t] : 0.0f;
  float d_lse = p.d_lse != nullptr ? p.d_lse[t] : 0.0f;
  if (p.z_scale != 0)
    d_lse = static_cast<float>(p.z_scale * static_cast<double>(lse)) * d_logprob;  // as cross_entropy()
  const float d_entropy = p.d_entropy != nullptr ? p.d_entropy[t] : 0.0f;
  const float d_kl = p.d_kl != nullptr ? p.d_kl[t] : 0.0f;
  const Vec weight = set1(d_lse - d_logprob + d_kl);  // of p
  const float entropy = p.d_entropy != nullptr ? p.entropy[t] : 0.0f;
  const float* q = p.d_kl != nullptr ? p.teacher + t * n : nullptr;
  const Vec scale = set1(p.scale), unscale = set1(1.0f / p.scale);
  const auto capped = [&](Vec w, Vec logit) {
    return (p.cap.cap > 0 ? w * soft_cap_slope(p.cap, logit * unscale) : w) * scale;
  };
  const auto of_any_token = [&](Vec logit, Vec teacher) {
    const Vec x = logit - set1(lse);
    Vec w = weight;
    if (p.d_entropy != nullptr) w = fma(x + set1(entropy), set1(-d_entropy), w);
    w = vexp(x) * w;
    return capped(q != nullptr ? fma(teacher, set1(-d_kl), w) : w, logit);
  };
  const Vec l_target = set1(l[target]), q_target = set1(q != nullptr ? q[target] : 0.0f);
  const Vec of_target = of_any_token(l_target, q_target) + capped(set1(d_logprob), l_target);
  sync_row();  // the target's logit has been read by all before one of them replaces it
  each_vector(n, [&](int64_t i, int count) {
    store_n(d + i, of_any_token(load_n(l + i, count), q != nullptr ? load_n(q + i, count) : zero()), count);
  });
  store_element(d, target, of_target);
}

/// The statistics of row t.
INGOT_INLINE void statistics_row(const HeadStatistics& p, int64_t t) {
  const int64_t n = p.vocabulary;
  const float* l = p.logits + t * p.stride;
  const Largest top = largest(l, n);
  const bool masked = p.targets[t] < 0;
  float lse = 0;
  if (!masked)
    lse = top.value + log_of(lane_sum(n, [&](int64_t j, int i, int rest) {
            if (i == 0) prefetch_after<2>(l + j, p.stride * int64_t{sizeof(float)});  // of the next row
            return vexp(load_rest(l + j, i, rest, -__builtin_inff()) - set1(top.value));
          }));
  const float entropy = masked || p.entropy == nullptr ? 0.0f : 0.0f - minus_entropy(l, lse, n);
  const float kl = masked || p.kl == nullptr ? 0.0f : divergence(p.teacher + t * n, l, lse, n);
  if (!writes_scalars()) return;
  p.best[t] = top.index;
  p.lse[t] = lse;
  p.logprob[t] = masked ? 0.0f : l[p.targets[t]] - lse;
  if (p.entropy != nullptr) p.entropy[t] = entropy;
  if (p.kl != nullptr) p.kl[t] = kl;
}

}  // namespace
}  // namespace ingot::INGOT_ISA
