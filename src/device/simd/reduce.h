// Sums and maxima of a row for kernels: 16 virtual lanes and one fixed tree, so that every instruction set
// and the scalar form (vmath_scalar.h) give the same bits. Element i goes to lane i % 16 in ascending order;
// missing elements of the last 16 count as +0 (maximum: -inf); the lanes are then added as i + (i+8), + 4, +
// 2, + 1. A NaN makes a sum NaN; a maximum may pass over it.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

constexpr int kVirtualLanes = 16;
constexpr int kLaneVecs = kVirtualLanes / kLanes;

/// 16 running values.
struct Lanes {
  Vec v[kLaneVecs];
};

INGOT_INLINE Lanes lanes(float x) {
  Lanes l;
  for (int i = 0; i < kLaneVecs; ++i) l.v[i] = set1(x);
  return l;
}

/// f(virtual lanes' vector, first element, how many) over a row: element i belongs to virtual lane i % 16.
template <class F>
INGOT_INLINE void each_lane(int64_t width, F&& f) {
  int64_t j = 0;
  for (; j + kVirtualLanes <= width; j += kVirtualLanes)
    for (int v = 0; v < kLaneVecs; ++v) f(v, j + v * kLanes, kLanes);
  for (int v = 0; j < width; ++v, j += kLanes)
    f(v, j, width - j < kLanes ? static_cast<int>(width - j) : kLanes);
}

/// The tree over 16 values.
template <class Combine>
INGOT_INLINE float tree(const Lanes& l, Combine combine) {
#if defined(INGOT_ISA_gpu)
  return tree_of_threads(l.v[0], combine);
#else
  float x[kVirtualLanes];
  for (int i = 0; i < kLaneVecs; ++i) store(x + i * kLanes, l.v[i]);
  for (int step = 8; step >= 1; step /= 2)
    for (int i = 0; i < step; ++i) x[i] = combine(x[i], x[i + step]);
  return x[0];
#endif
}
INGOT_INLINE float tree_sum(const Lanes& l) {
#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
  // The same tree without a way through memory.
#if defined(INGOT_ISA_avx512)
  const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(l.v[0].v), _mm512_extractf32x8_ps(l.v[0].v, 1));
#else
  const __m256 by8 = _mm256_add_ps(l.v[0].v, l.v[1].v);
#endif
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
#else
  return tree(l, [](float a, float b) { return a + b; });
#endif
}
INGOT_INLINE float tree_max(const Lanes& l) {
  return tree(l, [](float a, float b) { return a > b ? a : b; });
}

/// The elements i*kLanes.. of the last, incomplete 16; `rest` of them exist. `missing` fills the
/// others.
template <class T>
INGOT_INLINE Vec load_rest(const T* p, int i, int rest, float missing = 0.0f) {
  const int n = rest - i * kLanes;
  if (n >= kLanes) return load(p + i * kLanes);
  if (n <= 0) return set1(missing);
#if defined(INGOT_ISA_gpu)
  return first_lanes(n, load_tail(p, n), set1(missing));
#else
  float buffer[kLanes];
  store(buffer, set1(missing));
  store_tail(buffer, load_tail(p + i * kLanes, n), n);
  return load(buffer);
#endif
}

template <class T>
INGOT_INLINE float row_sum(const T* x, int64_t n) {
  Lanes acc = lanes(0.0f);
  int64_t j = 0;
  for (; j + kVirtualLanes <= n; j += kVirtualLanes)
    for (int i = 0; i < kLaneVecs; ++i) acc.v[i] = acc.v[i] + load(x + j + i * kLanes);
  if (j < n)
    for (int i = 0; i < kLaneVecs; ++i) acc.v[i] = acc.v[i] + load_rest(x + j, i, static_cast<int>(n - j));
  return tree_sum(acc);
}

template <class A, class B>
INGOT_INLINE float row_dot(const A* a, const B* b, int64_t n) {
  Lanes acc = lanes(0.0f);
  int64_t j = 0;
  for (; j + kVirtualLanes <= n; j += kVirtualLanes)
    for (int i = 0; i < kLaneVecs; ++i)
      acc.v[i] = fma(load(a + j + i * kLanes), load(b + j + i * kLanes), acc.v[i]);
  if (j < n)
    for (int i = 0; i < kLaneVecs; ++i) {
      const int rest = static_cast<int>(n - j);
      acc.v[i] = fma(load_rest(a + j, i, rest), load_rest(b + j, i, rest), acc.v[i]);
    }
  return tree_sum(acc);
}

template <class T>
INGOT_INLINE float row_sum_squares(const T* x, int64_t n) {
  return row_dot(x, x, n);
}

/// -inf for an empty row.
template <class T>
INGOT_INLINE float row_max(const T* x, int64_t n) {
  const float lowest = -__builtin_inff();
  Lanes acc = lanes(lowest);
  int64_t j = 0;
  for (; j + kVirtualLanes <= n; j += kVirtualLanes)
    for (int i = 0; i < kLaneVecs; ++i) acc.v[i] = max(acc.v[i], load(x + j + i * kLanes));
  if (j < n)
    for (int i = 0; i < kLaneVecs; ++i)
      acc.v[i] = max(acc.v[i], load_rest(x + j, i, static_cast<int>(n - j), lowest));
  return tree_max(acc);
}

}  // namespace ingot::INGOT_ISA
