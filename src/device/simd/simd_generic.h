// Vectors of floats: 4 lanes (1 for the scalar form) of the compiler's own vectors. Part of simd.h, which
// says what each operation means.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_scalar)
constexpr int kLanes = 1;
#else
constexpr int kLanes = 4;
#endif
typedef float FloatLanes __attribute__((vector_size(4 * kLanes)));
typedef int32_t IntLanes __attribute__((vector_size(4 * kLanes)));
typedef uint32_t UintLanes __attribute__((vector_size(4 * kLanes)));
struct Vec {
  FloatLanes v;
};
struct VecI {
  IntLanes v;
};
struct Mask {
  IntLanes m;
};

INGOT_INLINE Vec set1(float x) {
  Vec r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = x;
  return r;
}
INGOT_INLINE Vec zero() {
  return set1(0.0f);
}
INGOT_INLINE VecI set1i(int32_t x) {
  VecI r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = x;
  return r;
}
template <class T>
INGOT_INLINE Vec load_tail(const T* p, int n) {
  Vec r = zero();
  for (int i = 0; i < n; ++i) r.v[i] = ingot::to_float(p[i]);
  return r;
}
INGOT_INLINE Vec load(const float* p) {
  Vec r;
  std::memcpy(&r.v, p, sizeof(r.v));
  return r;
}
INGOT_INLINE Vec load(const bf16* p) {
  return load_tail(p, kLanes);
}
INGOT_INLINE void store_tail(float* p, Vec x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x.v[i];
}
INGOT_INLINE void store_tail(bf16* p, Vec x, int n) {
  for (int i = 0; i < n; ++i) p[i] = to_bf16(x.v[i]);
}
INGOT_INLINE void store(float* p, Vec x) {
  std::memcpy(p, &x.v, sizeof(x.v));
}
INGOT_INLINE void store(bf16* p, Vec x) {
  store_tail(p, x, kLanes);
}

INGOT_INLINE VecI as_int(Vec a) {
  return {reinterpret_cast<IntLanes>(a.v)};
}
INGOT_INLINE Vec as_float(VecI a) {
  return {reinterpret_cast<FloatLanes>(a.v)};
}
INGOT_INLINE Vec operator+(Vec a, Vec b) {
  return {a.v + b.v};
}
INGOT_INLINE Vec operator-(Vec a, Vec b) {
  return {a.v - b.v};
}
INGOT_INLINE Vec operator*(Vec a, Vec b) {
  return {a.v * b.v};
}
INGOT_INLINE Vec operator/(Vec a, Vec b) {
  return {a.v / b.v};
}
INGOT_INLINE Vec fma(Vec a, Vec b, Vec c) {
  Vec r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return r;
}
INGOT_INLINE Vec sqrt(Vec a) {
  Vec r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = __builtin_sqrtf(a.v[i]);
  return r;
}
INGOT_INLINE Mask operator<(Vec a, Vec b) {
  return {a.v < b.v};
}
INGOT_INLINE Mask operator>(Vec a, Vec b) {
  return {b.v < a.v};
}
INGOT_INLINE Mask is_nan(Vec a) {
  return {a.v != a.v};
}
INGOT_INLINE Mask equal(VecI a, VecI b) {
  return {a.v == b.v};
}
INGOT_INLINE Mask operator>(VecI a, VecI b) {
  return {a.v > b.v};
}
INGOT_INLINE Vec select(Mask m, Vec a, Vec b) {
  return as_float({(m.m & as_int(a).v) | (~m.m & as_int(b).v)});
}
INGOT_INLINE Vec max(Vec a, Vec b) {
  return select(b < a, a, b);
}
INGOT_INLINE Vec min(Vec a, Vec b) {
  return select(a < b, a, b);
}
INGOT_INLINE VecI operator+(VecI a, VecI b) {
  return {reinterpret_cast<IntLanes>(reinterpret_cast<UintLanes>(a.v) + reinterpret_cast<UintLanes>(b.v))};
}
INGOT_INLINE VecI operator-(VecI a, VecI b) {
  return {reinterpret_cast<IntLanes>(reinterpret_cast<UintLanes>(a.v) - reinterpret_cast<UintLanes>(b.v))};
}
INGOT_INLINE VecI operator&(VecI a, VecI b) {
  return {a.v & b.v};
}
INGOT_INLINE VecI operator|(VecI a, VecI b) {
  return {a.v | b.v};
}
INGOT_INLINE VecI operator^(VecI a, VecI b) {
  return {a.v ^ b.v};
}
template <int N>
INGOT_INLINE VecI shift_left(VecI a) {
  return {reinterpret_cast<IntLanes>(reinterpret_cast<UintLanes>(a.v) << N)};
}
template <int N>
INGOT_INLINE VecI shift_right(VecI a) {
  return {a.v >> N};
}
INGOT_INLINE Vec convert(VecI a) {
  return {__builtin_convertvector(a.v, FloatLanes)};
}
INGOT_INLINE float reduce_max(Vec a) {
  float m = a.v[0];
  for (int i = 1; i < kLanes; ++i) m = m > a.v[i] ? m : a.v[i];
  return m;
}

}  // namespace ingot::INGOT_ISA
