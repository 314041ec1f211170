// qk_prepare's heads and norms: the text of the kernels of every instruction set and of GPUs.
#pragma once
#include "ops/qk_prepare/isa_qk_prepare.h"
#include "ops/sequence/head_vectors.h"

namespace ingot::INGOT_ISA {
namespace {

INGOT_INLINE bool is_key(const QkPrepareRows& p, int64_t h) {
  return h >= p.heads;
}
/// Heads that share a norm with head h, and the first of them.
INGOT_INLINE int64_t sharing(const QkPrepareRows& p, int64_t h) {
  return !p.joint ? 1 : is_key(p, h) ? p.kv_heads : p.heads;
}
INGOT_INLINE int64_t first_sharing(const QkPrepareRows& p, int64_t h) {
  return !p.joint ? h : is_key(p, h) ? p.heads : 0;
}
/// Where head h's norm begins in the weights of q and k, one behind the other.
INGOT_INLINE int64_t weight_begin(const QkPrepareRows& p, int64_t h) {
  return p.joint ? h * p.width : is_key(p, h) ? p.width : 0;
}
/// Head h's part of its norm's weight; nullptr: none.
INGOT_INLINE const float* weight_of(const QkPrepareRows& p, int64_t h) {
  const float* w = p.weights[is_key(p, h)];
  return w == nullptr ? w : w + (h - first_sharing(p, h)) * p.width;
}
INGOT_INLINE float& rstd_of(const QkPrepareRows& p, int64_t t, int64_t h) {
  return p.joint ? p.rstd[t * 2 + is_key(p, h)] : p.rstd[t * (p.heads + p.kv_heads) + h];
}

/// Of the `shared` heads from x on, which share a norm.
template <class X>
INGOT_INLINE float norm_of(const QkPrepareRows& p, const X* x, int64_t shared) {
  const int64_t n = shared * p.width;
  return 1.0f / square_root(row_sum_squares(x, n) / static_cast<float>(n) + p.eps);
}
/// A normed head, or a gradient on its way back, times the norm's weight.
INGOT_INLINE Vec weighted(const QkPrepareRows& p, Vec w, Vec x) {
  return x * (w + set1(p.weight_offset));
}
/// The gradient of x, from that of x r and the mean of its products with x r.
INGOT_INLINE Vec centred(Vec grad, Vec normed, float mean, float r) {
  return fma(normed, set1(-mean), grad) * set1(r);
}

}  // namespace
}  // namespace ingot::INGOT_ISA
