// route for a range of rows, compiled once per instruction set; blocks of rows by score_block.h.
#include "ops/route/score_block.h"

namespace ingot::INGOT_ISA {
namespace {

/// -sum P log P over P > 0. softmax: by log P = l - lse. sigmoid: P = s / total.
INGOT_INLINE Vec entropy_of(const RouteRows& a, const Block& l, const Block& p, Vec lse, Vec total) {
  return fold_classes(a.classes, [&](int64_t c, Vec acc) {
    const Vec share = a.sigmoid ? p[c] / total : p[c];
    const Vec minus_log = a.sigmoid ? zero() - vlog(share) : lse - l[c];
    return acc + select(share > zero(), share * minus_log, zero());
  });
}

/// Writes the ids of the block's rows; the scores become keys.
INGOT_INLINE void select_experts(const RouteRows& a, int64_t t, int rows, Block& scores) {
  for (int64_t e = 0; e < a.choices; ++e) {
    const Vec score = a.bias != nullptr ? scores[e] + set1(a.bias[e]) : scores[e];
    scores.set(e, as_float(key_of(score)));
  }
  if (a.groups_kept < a.groups) limit_groups(scores, a.experts, a.groups, a.groups_kept, a.k / a.groups_kept);
  Block ids;
  choose(scores, a.choices, a.k, ids);
  for (int64_t j = 0; j < a.k; ++j) {
    int32_t of_rows[kLanes];
    std::memcpy(of_rows, ids.x + j * kLanes, sizeof(of_rows));
    for (int i = 0; i < rows; ++i) a.ids[(t + i) * a.k + j] = of_rows[i] < a.experts ? of_rows[i] : -1;
  }
}

/// The weights of lane i, row t, and the counts of its choices. An absent choice (-1) weighs nothing.
INGOT_INLINE void weigh(const RouteRows& a, int64_t t, int i, const Block& p, const RouteSums& sums) {
  const int32_t* ids = a.ids + t * a.k;
  float chosen = a.epsilon;
  for (int64_t j = 0; j < a.k; ++j)
    if (ids[j] >= 0) chosen += p.at(ids[j], i), sums.counts[ids[j]] += 1;
  for (int64_t j = 0; j < a.k && a.probs != nullptr; ++j) {
    const float of = ids[j] >= 0 ? p.at(ids[j], i) : 0.0f;
    a.probs[t * a.k + j] = a.scale * (a.divide && ids[j] >= 0 ? of / chosen : of);
  }
}

INGOT_INLINE void forward_block(const RouteRows& a, int64_t t, int rows, const RouteSums& sums) {
  Block l, p;
  load_transposed(l, a.logits + t * a.classes, rows, a.classes);
  const Vec lse = softmax(l, p, a.classes);
  const Vec total = a.sigmoid ? sigmoids(l, p, a.classes) : set1(1.0f);
  float lse_of[kLanes], total_of[kLanes], entropy[kLanes];
  store(lse_of, lse);
  store(total_of, total);
  store(entropy, entropy_of(a, l, p, lse, total));
  for (int i = 0; i < rows; ++i) {
    *sums.square = __builtin_fmaf(lse_of[i], lse_of[i], *sums.square);
    *sums.entropy += entropy[i];
  }
  store_transposed(p, rows, a.experts, [&](int i, int64_t c, Vec v, int count) {
    put_n(sums.mass + c, a.sigmoid ? v / set1(total_of[i]) : v, count, true);
  });
  if (a.forced != nullptr) {
    for (int64_t j = t * a.k; j < (t + rows) * a.k; ++j) a.ids[j] = a.forced[j];
  } else {
    for (int64_t e = 0; e < a.choices && !a.logits_score; ++e) l.set(e, p[e]);
    select_experts(a, t, rows, l);
  }
  for (int i = 0; i < rows; ++i) weigh(a, t + i, i, p, sums);
}

/// Adds to d_p what the chosen weights of lane i, row t, ask of the scores.
INGOT_INLINE void add_chosen(const RouteRows& a, int64_t t, int i, const Block& p, Block& d_p) {
  const float* d = a.d_probs + t * a.k;
  const int32_t* ids = a.ids + t * a.k;
  float chosen = a.epsilon, weighted = 0;
  for (int64_t j = 0; j < a.k; ++j) {
    if (ids[j] < 0) continue;
    const float of = p.at(ids[j], i);
    chosen += of;
    weighted = __builtin_fmaf(d[j], of, weighted);
  }
  // p_j = P_j / sum:  dP_j = (d_j - sum_i d_i P_i / sum) / sum
  for (int64_t j = 0; j < a.k; ++j)
    if (ids[j] >= 0)
      d_p.x[ids[j] * kLanes + i] += a.scale * (a.divide ? (d[j] - weighted / chosen) / chosen : d[j]);
}

/// d_p of the balance losses alone: the cotangent of the mass of each real expert.
INGOT_INLINE Vec mass_gradient(const RouteRows& a, int64_t c) {
  return a.d_mass != nullptr && c < a.experts ? set1(a.d_mass[c]) : zero();
}

/// d_logits of softmax scores, in d_p; l holds the logits, then the probabilities.
INGOT_INLINE void softmax_backward(const RouteRows& a, int64_t t, int rows, Block& l, Block& d_p) {
  const int64_t n = a.classes;
  const Vec lse = softmax(l, l, n);
  for (int64_t c = 0; c < n; ++c) d_p.set(c, mass_gradient(a, c));
  for (int i = 0; i < rows && a.d_probs != nullptr; ++i) add_chosen(a, t + i, i, l, d_p);
  const Vec dot = fold_classes(n, [&](int64_t c, Vec acc) { return fma(d_p[c], l[c], acc); });
  const Vec shift = set1(2 * a.d_square) * lse - dot;
  for (int64_t c = 0; c < n; ++c) d_p.set(c, l[c] * (d_p[c] + shift));
}

/// The same for sigmoid scores: P = s / sum s is what the balance losses see, s what the weights are made of.
INGOT_INLINE void sigmoid_backward(const RouteRows& a, int64_t t, int rows, Block& l, Block& d_p) {
  const int64_t n = a.classes;
  Block s;
  const Vec total = sigmoids(l, s, n), lse = softmax(l, l, n), one = set1(1.0f);
  const Vec dot =
      fold_classes(n, [&](int64_t c, Vec acc) { return fma(mass_gradient(a, c), s[c] / total, acc); });
  for (int64_t c = 0; c < n; ++c)
    d_p.set(c, a.d_mass != nullptr ? (mass_gradient(a, c) - dot) / total : zero());
  for (int i = 0; i < rows && a.d_probs != nullptr; ++i) add_chosen(a, t + i, i, s, d_p);
  for (int64_t c = 0; c < n; ++c)
    d_p.set(c, fma(d_p[c] * s[c], one - s[c], set1(2 * a.d_square) * lse * l[c]));
}

INGOT_INLINE void backward_block(const RouteRows& a, int64_t t, int rows) {
  const int64_t n = a.classes;
  Block l, d_p;
  load_transposed(l, a.logits + t * n, rows, n);
  if (a.sigmoid)
    sigmoid_backward(a, t, rows, l, d_p);
  else
    softmax_backward(a, t, rows, l, d_p);
  store_transposed(d_p, rows, n, [&](int i, int64_t c, Vec v, int count) {
    put_n(a.d_logits + (t + i) * n + c, v, count, a.accumulate);
  });
}

}  // namespace

void route_forward(const RouteRows& a, int64_t begin, int64_t end, const RouteSums& sums) {
  each_block(begin, end, [&](int64_t t, int rows) { forward_block(a, t, rows, sums); });
}

void route_backward(const RouteRows& a, int64_t begin, int64_t end) {
  each_block(begin, end, [&](int64_t t, int rows) { backward_block(a, t, rows); });
}

}  // namespace ingot::INGOT_ISA
