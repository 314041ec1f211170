// For the kernels of qk_prepare and cca: loops over the elements of a head with one body for full vectors and
// the tail, and the rotation of a head. Included only by isa_*.cpp; everything is elementwise, so its bits do
// not depend on the vector length.
#pragma once
#include "device/cpu/reduce.h"
#include "ops/sequence/rotary.h"

namespace ingot::INGOT_ISA {

/// Widest head that kernels keep on their stack.
constexpr int64_t kMaxHeadWidth = 1024;

/// f(first element, how many) over 0 .. n, kLanes at a time.
template <class F>
INGOT_INLINE void each_vector(int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, kLanes);
  if (i < n) f(i, static_cast<int>(n - i));
}

template <class T>
INGOT_INLINE Vec load_n(const T* p, int n) {
  return n == kLanes ? load(p) : load_tail(p, n);
}
template <class T>
INGOT_INLINE void store_n(T* p, Vec x, int n) {
  if (n == kLanes)
    store(p, x);
  else
    store_tail(p, x, n);
}
/// Writes or adds.
template <class T>
INGOT_INLINE void put_n(T* p, Vec x, int n, bool accumulate) {
  store_n(p, accumulate ? load_n(p, n) + x : x, n);
}

template <class A, class B>
INGOT_INLINE void copy_n(A* to, const B* from, int64_t count, bool accumulate = false) {
  each_vector(count, [&](int64_t i, int n) { put_n(to + i, load_n(from + i, n), n, accumulate); });
}

/// cos and sin of one row.
struct RowAngles {
  float cosine[kMaxHeadWidth / 2], sine[kMaxHeadWidth / 2];
};

/// Rotates the pairs (i, i + pairs) of a head in place, by the angles or (inverse) by their negatives.
INGOT_INLINE void rotate_head(float* x, const RowAngles& angles, int64_t pairs, bool inverse) {
  each_vector(pairs, [&](int64_t i, int n) {
    const Vec c = load_n(angles.cosine + i, n), s0 = load_n(angles.sine + i, n),
              s = inverse ? zero() - s0 : s0;
    const Vec a = load_n(x + i, n), b = load_n(x + pairs + i, n);
    store_n(x + i, fma(a, c, zero() - b * s), n);
    store_n(x + pairs + i, fma(b, c, a * s), n);
  });
}

}  // namespace ingot::INGOT_ISA
