// Vectors of floats: 8 lanes of AVX2. Part of simd.h, which says what each operation means.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

constexpr int kLanes = 8;
struct Vec {
  __m256 v;
};
struct VecI {
  __m256i v;
};
struct Mask {
  __m256 m;
};

INGOT_INLINE Vec set1(float x) {
  return {_mm256_set1_ps(x)};
}
INGOT_INLINE Vec zero() {
  return {_mm256_setzero_ps()};
}
INGOT_INLINE VecI set1i(int32_t x) {
  return {_mm256_set1_epi32(x)};
}
INGOT_INLINE Vec load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
INGOT_INLINE Vec widen(__m128i x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16))};
}
INGOT_INLINE Vec load(const bf16* p) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
template <class T>
INGOT_INLINE Vec load_tail(const T* p, int n) {
  T buffer[8] = {};
  for (int i = 0; i < n; ++i) buffer[i] = p[i];
  return load(buffer);
}
INGOT_INLINE __m128i narrow(Vec x) {
  const __m256i u = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256 nan = _mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q);
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i picked =
      _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan));
  const __m256i high = _mm256_srli_epi32(picked, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
INGOT_INLINE void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.v);
}
INGOT_INLINE void store(bf16* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x));
}
template <class T>
INGOT_INLINE void store_tail(T* p, Vec x, int n) {
  T buffer[8];
  store(buffer, x);
  for (int i = 0; i < n; ++i) p[i] = buffer[i];
}

INGOT_INLINE Vec operator+(Vec a, Vec b) {
  return {_mm256_add_ps(a.v, b.v)};
}
INGOT_INLINE Vec operator-(Vec a, Vec b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
INGOT_INLINE Vec operator*(Vec a, Vec b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
INGOT_INLINE Vec operator/(Vec a, Vec b) {
  return {_mm256_div_ps(a.v, b.v)};
}
INGOT_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
INGOT_INLINE Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.v, b.v)};
}
INGOT_INLINE Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.v, b.v)};
}
INGOT_INLINE Vec sqrt(Vec a) {
  return {_mm256_sqrt_ps(a.v)};
}
INGOT_INLINE Mask operator<(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)};
}
INGOT_INLINE Mask operator>(Vec a, Vec b) {
  return b < a;
}
INGOT_INLINE Mask is_nan(Vec a) {
  return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)};
}
INGOT_INLINE Mask equal(VecI a, VecI b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.v, b.v))};
}
INGOT_INLINE Mask operator>(VecI a, VecI b) {
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(a.v, b.v))};
}
INGOT_INLINE Vec select(Mask m, Vec a, Vec b) {
  return {_mm256_blendv_ps(b.v, a.v, m.m)};
}
INGOT_INLINE VecI as_int(Vec a) {
  return {_mm256_castps_si256(a.v)};
}
INGOT_INLINE Vec as_float(VecI a) {
  return {_mm256_castsi256_ps(a.v)};
}
INGOT_INLINE VecI operator+(VecI a, VecI b) {
  return {_mm256_add_epi32(a.v, b.v)};
}
INGOT_INLINE VecI operator-(VecI a, VecI b) {
  return {_mm256_sub_epi32(a.v, b.v)};
}
INGOT_INLINE VecI operator&(VecI a, VecI b) {
  return {_mm256_and_si256(a.v, b.v)};
}
INGOT_INLINE VecI operator|(VecI a, VecI b) {
  return {_mm256_or_si256(a.v, b.v)};
}
INGOT_INLINE VecI operator^(VecI a, VecI b) {
  return {_mm256_xor_si256(a.v, b.v)};
}
template <int N>
INGOT_INLINE VecI shift_left(VecI a) {
  return {_mm256_slli_epi32(a.v, N)};
}
template <int N>
INGOT_INLINE VecI shift_right(VecI a) {
  return {_mm256_srai_epi32(a.v, N)};
}
INGOT_INLINE Vec convert(VecI a) {
  return {_mm256_cvtepi32_ps(a.v)};
}
INGOT_INLINE float reduce_max(Vec a) {
  const __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 y = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

}  // namespace ingot::INGOT_ISA
