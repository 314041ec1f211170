// Loops over the elements of a row with one body for full vectors and the tail, for kernel files; see simd.h
// for the rules. Elementwise, so the bits do not depend on the vector length.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

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

/// x in the first n lanes, 0 in the others.
INGOT_INLINE Vec set_n(float x, int n) {
  if (n == kLanes) return set1(x);
#if defined(INGOT_ISA_gpu)
  return first_lanes(n, set1(x), zero());
#else
  float all[kLanes];
  store(all, set1(x));
  return load_tail(all, n);
#endif
}

#if !defined(INGOT_ISA_gpu)
/// What the threads of a row have read and written before, all of them see from here on.
INGOT_INLINE void sync_row() {}
/// A lane of a vector whose lanes are equal.
INGOT_INLINE float any_lane(Vec x) {
  float all[kLanes];
  store(all, x);
  return all[0];
}
/// row[i] = a lane of a vector whose lanes are equal, after what was stored there by vectors from 0 on.
template <class T>
INGOT_INLINE void store_element(T* row, int64_t i, Vec x) {
  store_tail(row + i, x, 1);
}
#endif

/// Calls f with a pointer of the type that it has (f32 or bf16).
template <class F>
void typed(const void* p, DType type, F&& f) {
  if (type == DType::bf16)
    f(static_cast<const bf16*>(p));
  else
    f(static_cast<const float*>(p));
}
template <class F>
void typed(void* p, DType type, F&& f) {
  if (type == DType::bf16)
    f(static_cast<bf16*>(p));
  else
    f(static_cast<float*>(p));
}

template <class A, class B>
INGOT_INLINE void copy_n(A* to, const B* from, int64_t count, bool accumulate = false) {
  each_vector(count, [&](int64_t i, int n) { put_n(to + i, load_n(from + i, n), n, accumulate); });
}

}  // namespace ingot::INGOT_ISA
