// Vectors of floats on a GPU: 16 lanes, of which each of 4 threads beside each other has 4, so that they are
// the virtual lanes of reduce.h. Part of simd.h, which says what each operation means. A row is the work of
// the 4 threads: they take the same branches, and each touches its lanes' elements alone; what they all know
// (a sum, a statistic) one of them writes (put_scalar).
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

constexpr int kLanes = 16;
constexpr int kThreadsOfRow = 4, kLanesOfThread = 4;

struct Vec {
  float v[kLanesOfThread];
};
struct VecI {
  int32_t v[kLanesOfThread];
};
struct Mask {
  bool m[kLanesOfThread];
};

/// The thread's first lane.
INGOT_INLINE int first_lane() {
  return static_cast<int>(thread_index() % kThreadsOfRow) * kLanesOfThread;
}
INGOT_INLINE bool writes_scalars() {
  return thread_index() % kThreadsOfRow == 0;
}
INGOT_INLINE float square_root(float x) {
  return sqrt_rn(x);
}

template <class Result, class F>
INGOT_INLINE Result each_of_four(F&& f) {
  Result r;
  INGOT_UNROLL
  for (int i = 0; i < kLanesOfThread; ++i) f(r, i);
  return r;
}
template <class F>
INGOT_INLINE Vec four_floats(F&& f) {
  return each_of_four<Vec>([&](Vec& r, int i) { r.v[i] = f(i); });
}
template <class F>
INGOT_INLINE VecI four_ints(F&& f) {
  return each_of_four<VecI>([&](VecI& r, int i) { r.v[i] = static_cast<int32_t>(f(i)); });
}
template <class F>
INGOT_INLINE Mask four_bools(F&& f) {
  return each_of_four<Mask>([&](Mask& r, int i) { r.m[i] = f(i); });
}

INGOT_INLINE Vec set1(float x) {
  return four_floats([&](int) { return x; });
}
INGOT_INLINE Vec zero() {
  return set1(0.0f);
}
INGOT_INLINE VecI set1i(int32_t x) {
  return four_ints([&](int) { return x; });
}
/// The first n lanes of a, the others of b.
INGOT_INLINE Vec first_lanes(int n, Vec a, Vec b) {
  return four_floats([&](int i) { return first_lane() + i < n ? a.v[i] : b.v[i]; });
}

/// Rounds to nearest even; NaN stays NaN.
INGOT_INLINE uint16_t bf16_bits(float x) {
  const uint32_t u = bits_of(x);
  const uint32_t rounded = (u + 0x7FFFu + (u >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? u >> 16 | 0x40u : rounded);
}
INGOT_INLINE float widened(float x) {
  return x;
}
INGOT_INLINE float widened(bf16 x) {
  return as_float_bits(static_cast<uint32_t>(x.bits) << 16);
}

template <class T>
INGOT_INLINE bool is_aligned(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % (sizeof(T) * kLanesOfThread) == 0;
}
template <class T>
INGOT_INLINE Vec load_tail(const T* p, int n) {
  return four_floats([&](int i) { return first_lane() + i < n ? widened(p[first_lane() + i]) : 0.0f; });
}
INGOT_INLINE Vec load(const float* p) {
  p += first_lane();
  if (!is_aligned(p)) return four_floats([&](int i) { return p[i]; });
  Vec r;
  load4(p, r.v);
  return r;
}
INGOT_INLINE Vec load(const bf16* p) {
  p += first_lane();
  if (!is_aligned(p)) return four_floats([&](int i) { return widened(p[i]); });
  uint16_t bits[kLanesOfThread];
  load4(&p->bits, bits);
  return four_floats([&](int i) { return widened(bf16{bits[i]}); });
}
INGOT_INLINE void store_one(float* p, float x) {
  *p = x;
}
INGOT_INLINE void store_one(bf16* p, float x) {
  p->bits = bf16_bits(x);
}
INGOT_INLINE void store_tail(float* p, Vec x, int n) {
  INGOT_UNROLL
  for (int i = 0; i < kLanesOfThread; ++i)
    if (first_lane() + i < n) p[first_lane() + i] = x.v[i];
}
INGOT_INLINE void store_tail(bf16* p, Vec x, int n) {
  INGOT_UNROLL
  for (int i = 0; i < kLanesOfThread; ++i)
    if (first_lane() + i < n) p[first_lane() + i].bits = bf16_bits(x.v[i]);
}
INGOT_INLINE void store(float* p, Vec x) {
  p += first_lane();
  if (is_aligned(p)) return store4(p, x.v);
  INGOT_UNROLL
  for (int i = 0; i < kLanesOfThread; ++i) p[i] = x.v[i];
}
INGOT_INLINE void store(bf16* p, Vec x) {
  p += first_lane();
  uint16_t bits[kLanesOfThread];
  INGOT_UNROLL
  for (int i = 0; i < kLanesOfThread; ++i) bits[i] = bf16_bits(x.v[i]);
  if (is_aligned(p)) return store4(&p->bits, bits);
  INGOT_UNROLL
  for (int i = 0; i < kLanesOfThread; ++i) p[i].bits = bits[i];
}

INGOT_INLINE void sync_row() {
  shuffle_xor<kThreadsOfRow>(0.0f, 0);
}
INGOT_INLINE float any_lane(Vec x) {
  return x.v[0];
}
/// The thread whose lane it is stores it.
template <class T>
INGOT_INLINE void store_element(T* row, int64_t i, Vec x) {
  const int64_t first = i / kLanes * kLanes;
  INGOT_UNROLL
  for (int k = 0; k < kLanesOfThread; ++k)
    if (first + first_lane() + k == i) store_one(row + i, x.v[k]);
}

INGOT_INLINE VecI as_int(Vec a) {
  return four_ints([&](int i) { return bits_of(a.v[i]); });
}
INGOT_INLINE Vec as_float(VecI a) {
  return four_floats([&](int i) { return as_float_bits(static_cast<uint32_t>(a.v[i])); });
}
INGOT_INLINE Vec operator+(Vec a, Vec b) {
  return four_floats([&](int i) { return add_rn(a.v[i], b.v[i]); });
}
INGOT_INLINE Vec operator-(Vec a, Vec b) {
  return four_floats([&](int i) { return sub_rn(a.v[i], b.v[i]); });
}
INGOT_INLINE Vec operator*(Vec a, Vec b) {
  return four_floats([&](int i) { return mul_rn(a.v[i], b.v[i]); });
}
INGOT_INLINE Vec operator/(Vec a, Vec b) {
  return four_floats([&](int i) { return div_rn(a.v[i], b.v[i]); });
}
INGOT_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return four_floats([&](int i) { return fma_rn(a.v[i], b.v[i], c.v[i]); });
}
INGOT_INLINE Vec sqrt(Vec a) {
  return four_floats([&](int i) { return sqrt_rn(a.v[i]); });
}
INGOT_INLINE Mask operator<(Vec a, Vec b) {
  return four_bools([&](int i) { return a.v[i] < b.v[i]; });
}
INGOT_INLINE Mask operator>(Vec a, Vec b) {
  return b < a;
}
INGOT_INLINE Mask is_nan(Vec a) {
  return four_bools([&](int i) { return a.v[i] != a.v[i]; });
}
INGOT_INLINE Mask equal(VecI a, VecI b) {
  return four_bools([&](int i) { return a.v[i] == b.v[i]; });
}
INGOT_INLINE Mask operator>(VecI a, VecI b) {
  return four_bools([&](int i) { return a.v[i] > b.v[i]; });
}
INGOT_INLINE Vec select(Mask m, Vec a, Vec b) {
  return four_floats([&](int i) { return m.m[i] ? a.v[i] : b.v[i]; });
}
INGOT_INLINE Vec max(Vec a, Vec b) {
  return select(b < a, a, b);
}
INGOT_INLINE Vec min(Vec a, Vec b) {
  return select(a < b, a, b);
}
INGOT_INLINE VecI operator+(VecI a, VecI b) {
  return four_ints([&](int i) { return static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i]); });
}
INGOT_INLINE VecI operator-(VecI a, VecI b) {
  return four_ints([&](int i) { return static_cast<uint32_t>(a.v[i]) - static_cast<uint32_t>(b.v[i]); });
}
INGOT_INLINE VecI operator&(VecI a, VecI b) {
  return four_ints([&](int i) { return a.v[i] & b.v[i]; });
}
INGOT_INLINE VecI operator|(VecI a, VecI b) {
  return four_ints([&](int i) { return a.v[i] | b.v[i]; });
}
INGOT_INLINE VecI operator^(VecI a, VecI b) {
  return four_ints([&](int i) { return a.v[i] ^ b.v[i]; });
}
template <int N>
INGOT_INLINE VecI shift_left(VecI a) {
  return four_ints([&](int i) { return static_cast<uint32_t>(a.v[i]) << N; });
}
template <int N>
INGOT_INLINE VecI shift_right(VecI a) {
  return four_ints([&](int i) { return a.v[i] >> N; });
}
INGOT_INLINE Vec convert(VecI a) {
  return four_floats([&](int i) { return static_cast<float>(a.v[i]); });
}

/// The tree of reduce.h: lanes i and i + 8 are two threads apart, then one, then in the same thread. All
/// threads know the result, and combine in the same order.
template <class Combine>
INGOT_INLINE float tree_of_threads(Vec a, Combine combine) {
  INGOT_UNROLL
  for (unsigned apart = 2; apart >= 1; apart /= 2) {
    const bool is_upper = (thread_index() & apart) != 0;
    a = four_floats([&](int i) {
      const float other = shuffle_xor<kThreadsOfRow>(a.v[i], apart);
      return is_upper ? combine(other, a.v[i]) : combine(a.v[i], other);
    });
  }
  return combine(combine(a.v[0], a.v[2]), combine(a.v[1], a.v[3]));
}
INGOT_INLINE float reduce_max(Vec a) {
  return tree_of_threads(a, [](float x, float y) { return x > y ? x : y; });
}

}  // namespace ingot::INGOT_ISA
