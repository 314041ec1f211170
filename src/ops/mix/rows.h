// mix's work on 16 columns or fewer of a row: the text of the kernels of every instruction set and of GPUs.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/reduce.h"
#include "ops/mix/isa_mix.h"

namespace ingot::INGOT_ISA {
namespace {

INGOT_INLINE Vec alpha_of(const MixRows& p) {
  return set1(p.alpha != nullptr ? *p.alpha : p.factor);
}
INGOT_INLINE Vec beta_of(const MixRows& p) {
  return set1(p.beta != nullptr ? *p.beta : 1.0f);
}
/// The first mixed column of row t of a and y, and the row's first of b.
INGOT_INLINE int64_t mixed_begin(const MixRows& p, int64_t t) {
  return t * p.width + p.first;
}
INGOT_INLINE int64_t b_begin(const MixRows& p, int64_t t) {
  return t * (p.width - p.first);
}

/// n mixed columns of y from the i-th of row t.
template <class A, class B, class Y>
INGOT_INLINE void mix_n(const MixRows& p, const A* a, const B* b, Y* y, Vec alpha, Vec beta, int64_t t,
                        int64_t i, int n) {
  Vec v = load_n(a + mixed_begin(p, t) + i, n) * alpha;
  if (b != nullptr) v = fma(load_n(b + b_begin(p, t) + i, n), beta, v);
  store_n(y + mixed_begin(p, t) + i, v, n);
}

/// The same of d_a and d_b.
template <class A, class B, class Y>
INGOT_INLINE void mix_gradient_n(const MixRows& p, A* d_a, B* d_b, const Y* d_y, Vec alpha, Vec beta,
                                 int64_t t, int64_t i, int n) {
  const Vec d = load_n(d_y + mixed_begin(p, t) + i, n);
  if (d_a != nullptr) put_n(d_a + mixed_begin(p, t) + i, d * alpha, n, p.accumulate_a);
  if (d_b != nullptr) put_n(d_b + b_begin(p, t) + i, d * beta, n, p.accumulate_b);
}

/// Row t's part of the scalars' gradients.
template <class X, class Y>
INGOT_INLINE float mixed_dot(const MixRows& p, const X* x, int64_t begin, const Y* d_y, int64_t t) {
  return row_dot(x + begin, d_y + mixed_begin(p, t), p.width - p.first);
}

}  // namespace
}  // namespace ingot::INGOT_ISA
