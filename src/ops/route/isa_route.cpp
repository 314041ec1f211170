// route for a range of rows, compiled once per instruction set. A row's classes are kept on the stack; sums
// over them use the 16 virtual lanes of reduce.h.
#include "device/cpu/loops.h"
#include "device/cpu/reduce.h"
#include "device/cpu/vmath.h"
#include "ops/route/row_kernels.h"

namespace ingot::INGOT_ISA {
namespace {

INGOT_INLINE float log_of(float x) {
  float all[kLanes];
  store(all, vlog(set1(x)));
  return all[0];
}

/// p = softmax(l); returns log sum exp l.
INGOT_INLINE float softmax(const float* l, float* p, int64_t n) {
  const float top = row_max(l, n);
  each_vector(n,
              [&](int64_t i, int count) { store_n(p + i, vexp(load_n(l + i, count) - set1(top)), count); });
  const float sum = row_sum(p, n);
  each_vector(n, [&](int64_t i, int count) { store_n(p + i, load_n(p + i, count) / set1(sum), count); });
  return top + log_of(sum);
}

/// -sum p log p over p > 0, by log p = l - lse.
INGOT_INLINE float entropy_of(const float* l, const float* p, float lse, int64_t n) {
  float terms[kMaxRouteClasses];
  each_vector(n, [&](int64_t i, int count) {
    const Vec q = load_n(p + i, count);
    store_n(terms + i, select(q > zero(), q * (set1(lse) - load_n(l + i, count)), zero()), count);
  });
  return row_sum(terms, n);
}

/// The k largest of the scores, ties to the lowest index, in ascending order; destroys the scores.
INGOT_INLINE void choose(float* scores, int64_t experts, int64_t k, int32_t* ids) {
  bool taken[kMaxRouteClasses];
  for (int64_t e = 0; e < experts; ++e) taken[e] = false;
  for (int64_t j = 0; j < k; ++j) {
    const float top = row_max(scores, experts);
    int64_t best = -1, any = -1;  // NaN scores lose; if nothing else is left, the lowest index wins
    for (int64_t e = 0; e < experts && best < 0; ++e) {
      if (taken[e]) continue;
      if (any < 0) any = e;
      if (scores[e] == top) best = e;
    }
    if (best < 0) best = any;
    taken[best] = true;
    scores[best] = -__builtin_inff();
    int64_t place = j;
    for (; place > 0 && ids[place - 1] > best; --place) ids[place] = ids[place - 1];
    ids[place] = static_cast<int32_t>(best);
  }
}

INGOT_INLINE void forward_row(const RouteRows& a, int64_t t, const RouteSums& sums) {
  const float* l = a.logits + t * a.classes;
  float p[kMaxRouteClasses], scores[kMaxRouteClasses];
  const float lse = softmax(l, p, a.classes);
  *sums.square = __builtin_fmaf(lse, lse, *sums.square);
  *sums.entropy += entropy_of(l, p, lse, a.classes);
  copy_n(sums.mass, p, a.experts, true);
  int32_t* ids = a.ids + t * a.k;
  if (a.forced != nullptr) {
    for (int64_t j = 0; j < a.k; ++j) ids[j] = a.forced[t * a.k + j];
  } else {
    copy_n(scores, a.logits_score ? l : p, a.experts);
    if (a.bias != nullptr) copy_n(scores, a.bias, a.experts, true);
    choose(scores, a.experts, a.k, ids);
  }
  float chosen = 0;
  for (int64_t j = 0; j < a.k; ++j) chosen += p[ids[j]];
  for (int64_t j = 0; j < a.k; ++j) {
    a.probs[t * a.k + j] = a.scale * (a.divide ? p[ids[j]] / chosen : p[ids[j]]);
    sums.counts[ids[j]] += 1;
  }
}

INGOT_INLINE void backward_row(const RouteRows& a, int64_t t) {
  const int64_t n = a.classes;
  float p[kMaxRouteClasses], d_p[kMaxRouteClasses];
  const float lse = softmax(a.logits + t * n, p, n);
  const int32_t* ids = a.ids + t * a.k;
  const int64_t given = a.d_mass != nullptr ? a.experts : 0;
  copy_n(d_p, a.d_mass, given);
  for (int64_t e = given; e < n; ++e) d_p[e] = 0.0f;
  if (a.d_probs != nullptr) {
    const float* d = a.d_probs + t * a.k;
    float chosen = 0, weighted = 0;
    for (int64_t j = 0; j < a.k; ++j) {
      chosen += p[ids[j]];
      weighted = __builtin_fmaf(d[j], p[ids[j]], weighted);
    }
    // p_j = P_j / sum:  dP_j = (d_j - sum_i d_i P_i / sum) / sum
    for (int64_t j = 0; j < a.k; ++j)
      d_p[ids[j]] += a.scale * (a.divide ? (d[j] - weighted / chosen) / chosen : d[j]);
  }
  const float shift = 2 * a.d_square * lse - row_dot(d_p, p, n);
  each_vector(n, [&](int64_t i, int count) {
    put_n(a.d_logits + t * n + i, load_n(p + i, count) * (load_n(d_p + i, count) + set1(shift)), count,
          a.accumulate);
  });
}

}  // namespace

void route_forward(const RouteRows& a, int64_t begin, int64_t end, const RouteSums& sums) {
  for (int64_t t = begin; t < end; ++t) forward_row(a, t, sums);
}

void route_backward(const RouteRows& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) backward_row(a, t);
}

}  // namespace ingot::INGOT_ISA
