// cca's work on 16 channels or fewer of a row: the text of the kernels of every instruction set and of GPUs.
// Formulas: cca.h.
#pragma once
#include "ops/cca/isa_cca.h"
#include "ops/sequence/head_vectors.h"

namespace ingot::INGOT_ISA {
namespace {

/// A head's width as the compiler knows it; 0: only at run time.
template <int64_t kWidth>
INGOT_INLINE int64_t width_of(const CcaRows& p) {
  return kWidth != 0 ? kWidth : p.width;
}
template <int64_t kWidth, class F>
INGOT_INLINE void each_of_head(const CcaRows& p, F&& f) {
#if !defined(INGOT_ISA_gpu)
  if constexpr (kWidth != 0) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kWidth; i += kLanes) f(i, kLanes);
    return;
  }
#endif
  each_vector(width_of<kWidth>(p), f);
}

INGOT_INLINE int64_t heads_of(const CcaRows& p) {
  return p.heads + p.kv_heads;
}
INGOT_INLINE int64_t channels(const CcaRows& p) {
  return heads_of(p) * p.width;
}
INGOT_INLINE int64_t row_width(const CcaRows& p) {
  return channels(p) + p.kv_heads * p.width;
}
/// Value channels of the token itself.
INGOT_INLINE int64_t current(const CcaRows& p) {
  return p.kv_heads * p.width - p.delayed;
}
/// Head n at a view row of d_c.
INGOT_INLINE int64_t at(const CcaRows& p, int64_t n, int64_t view) {
  return (n * p.view_rows + view) * p.width;
}
/// The same of u, c and d_u.
INGOT_INLINE int64_t at_block(const CcaRows& p, int64_t n, int64_t view) {
  return (n * p.block_rows + view) * p.width;
}

/// m channels of u from channel e on, from those of z of the row before and of the row.
INGOT_INLINE Vec convolved_n(const CcaRows& p, int64_t e, Vec before, Vec now, int m) {
  const Vec old = fma(load_n(p.older + e, m), before, load_n(p.depthwise_bias + e, m));
  return fma(load_n(p.newer + e, m), now, old);
}

/// A head and the heads that it shares a key with.
struct Group {
  int64_t ratio, key;  ///< query heads of a key; the key's number
};
INGOT_INLINE Group group_of(const CcaRows& p, int64_t n) {
  // A GPU divides 32 bits without a call.
  const int32_t ratio = static_cast<int32_t>(p.heads) / static_cast<int32_t>(p.kv_heads);
  return {ratio, n < p.heads ? static_cast<int32_t>(n) / ratio : n - p.heads};
}

/// The mean skip: for a query head (q_h + k_j) / 2, for a key head (mean of its q_h + k_j) / 2.
template <int64_t kWidth, class X>
INGOT_INLINE Vec mean_skip(const CcaRows& p, const Group& g, const X* row, int64_t n, int64_t i, int m) {
  const int64_t K = width_of<kWidth>(p);
  Vec q;
  if (n < p.heads) {
    q = load_n(row + n * K + i, m);
  } else {
    q = load_n(row + g.key * g.ratio * K + i, m);
    for (int64_t h = g.key * g.ratio + 1; h < (g.key + 1) * g.ratio; ++h) q = q + load_n(row + h * K + i, m);
    q = q * set1(1.0f / static_cast<float>(g.ratio));
  }
  return set1(0.5f) * (q + load_n(row + (p.heads + g.key) * K + i, m));
}

/// The head before its norm goes to `head`, which may be where c is; returns 1 / |head|.
template <int64_t kWidth, class X>
INGOT_INLINE float head_before_norm(const CcaRows& p, const X* row, const float* c, int64_t n, float* head) {
  const Group g = group_of(p, n);
  each_of_head<kWidth>(p, [&](int64_t i, int m) {
    store_n(head + i, load_n(c + i, m) + mean_skip<kWidth>(p, g, row, n, i, m), m);
  });
  return 1.0f / square_root(row_sum_squares(head, p.width) + p.norm_eps);
}

INGOT_INLINE float root_of_width(const CcaRows& p) {
  return square_root(static_cast<float>(p.width));
}
/// What multiplies a head of norm 1.
INGOT_INLINE float factor_of(const CcaRows& p, float root, int64_t n) {
  return root * (n < p.heads ? 1.0f : p.temperature[n - p.heads]);
}
/// What multiplies a head before its norm.
INGOT_INLINE float scale_of(const CcaRows& p, float root, int64_t n, float inverse) {
  return inverse * root * (n < p.heads ? 1.0f : p.temperature[n - p.heads]);
}
/// The gradient of a head before its norm, from that of the head after it, and the head over its norm.
INGOT_INLINE Vec through_norm(Vec grad, Vec unit, float dot, float scale) {
  return set1(scale) * fma(unit, set1(-dot), grad);
}

/// What a channel of z gets through the mean skip.
INGOT_INLINE Vec mean_skip_backward(const CcaRows& p, const Group& g, int64_t n, int64_t view, int64_t i,
                                    int m) {
  const Vec key = load_n(p.d_c + at(p, p.heads + g.key, view) + i, m);
  if (n < p.heads)
    return set1(0.5f) *
           fma(key, set1(1.0f / static_cast<float>(g.ratio)), load_n(p.d_c + at(p, n, view) + i, m));
  Vec sum = load_n(p.d_c + at(p, g.key * g.ratio, view) + i, m);
  for (int64_t h = g.key * g.ratio + 1; h < (g.key + 1) * g.ratio; ++h)
    sum = sum + load_n(p.d_c + at(p, h, view) + i, m);
  return set1(0.5f) * (sum + key);
}

/// A row of the call in its span.
struct SpanRow {
  int64_t row, view;
  bool is_first, is_last;
};
/// Sums over rows of the depthwise convolution's gradients.
struct DepthwiseSums {
  Vec older, newer, bias;
};

/// m channels of head n from its channel i on, of one row: adds to the sums, writes d_x.
template <int64_t kWidth, class X>
INGOT_INLINE void depthwise_backward_n(const CcaRows& p, const SpanRow& at_row, const Group& group, int64_t n,
                                       int64_t i, int m, DepthwiseSums& sums) {
  const int64_t K = width_of<kWidth>(p), width = row_width(p), e = n * K + i;
  const X* x = static_cast<const X*>(p.x) + at_row.row * width;
  const float* d_u = p.d_u + at_block(p, n, at_row.view);
  const Vec g = load_n(d_u + i, m);
  sums.bias = sums.bias + g;
  if (at_row.is_first)
    sums.bias = sums.bias + load_n(d_u - K + i, m);  // of u_{-1}
  else
    sums.older = fma(g, load_n(x - width + e, m), sums.older);
  sums.newer = fma(g, load_n(x + e, m), sums.newer);
  if (p.d_x == nullptr) return;
  Vec d_z = fma(load_n(p.newer + e, m), g, mean_skip_backward(p, group, n, at_row.view, i, m));
  if (!at_row.is_last) d_z = fma(load_n(p.older + e, m), load_n(d_u + K + i, m), d_z);
  put_n(static_cast<X*>(p.d_x) + at_row.row * width + e, d_z, m, p.accumulate);
}

}  // namespace
}  // namespace ingot::INGOT_ISA
