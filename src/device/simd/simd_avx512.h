// Vectors of floats: 16 lanes of AVX-512. Part of simd.h, which says what each operation means.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

constexpr int kLanes = 16;
struct Vec {
  __m512 v;
};
struct VecI {
  __m512i v;
};
struct Mask {
  __mmask16 m;
};

INGOT_INLINE __mmask16 tail_mask(int n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
INGOT_INLINE Vec set1(float x) {
  return {_mm512_set1_ps(x)};
}
INGOT_INLINE Vec zero() {
  return {_mm512_setzero_ps()};
}
INGOT_INLINE VecI set1i(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
INGOT_INLINE Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
INGOT_INLINE Vec widen(__m256i x) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16))};
}
INGOT_INLINE Vec load(const bf16* p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
/// The first n (0..kLanes) elements; the others are 0 and are not read.
INGOT_INLINE Vec load_tail(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(tail_mask(n), p)};
}
INGOT_INLINE Vec load_tail(const bf16* p, int n) {
  return widen(_mm256_maskz_loadu_epi16(tail_mask(n), p));
}
INGOT_INLINE __m256i narrow(Vec x) {
  const __m512i u = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
}
INGOT_INLINE void store(float* p, Vec x) {
  _mm512_storeu_ps(p, x.v);
}
INGOT_INLINE void store(bf16* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x));
}
/// Writes the first n (0..kLanes) elements only.
INGOT_INLINE void store_tail(float* p, Vec x, int n) {
  _mm512_mask_storeu_ps(p, tail_mask(n), x.v);
}
INGOT_INLINE void store_tail(bf16* p, Vec x, int n) {
  _mm256_mask_storeu_epi16(p, tail_mask(n), narrow(x));
}

INGOT_INLINE Vec operator+(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}
INGOT_INLINE Vec operator-(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
INGOT_INLINE Vec operator*(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
INGOT_INLINE Vec operator/(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}
INGOT_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
INGOT_INLINE Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}
INGOT_INLINE Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}
INGOT_INLINE Vec sqrt(Vec a) {
  return {_mm512_sqrt_ps(a.v)};
}
INGOT_INLINE Mask operator<(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
INGOT_INLINE Mask operator>(Vec a, Vec b) {
  return b < a;
}
INGOT_INLINE Mask is_nan(Vec a) {
  return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)};
}
INGOT_INLINE Mask equal(VecI a, VecI b) {
  return {_mm512_cmpeq_epi32_mask(a.v, b.v)};
}
INGOT_INLINE Mask operator>(VecI a, VecI b) {
  return {_mm512_cmpgt_epi32_mask(a.v, b.v)};
}
INGOT_INLINE Vec select(Mask m, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(m.m, b.v, a.v)};
}
INGOT_INLINE VecI as_int(Vec a) {
  return {_mm512_castps_si512(a.v)};
}
INGOT_INLINE Vec as_float(VecI a) {
  return {_mm512_castsi512_ps(a.v)};
}
INGOT_INLINE VecI operator+(VecI a, VecI b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
INGOT_INLINE VecI operator-(VecI a, VecI b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
INGOT_INLINE VecI operator&(VecI a, VecI b) {
  return {_mm512_and_si512(a.v, b.v)};
}
INGOT_INLINE VecI operator|(VecI a, VecI b) {
  return {_mm512_or_si512(a.v, b.v)};
}
INGOT_INLINE VecI operator^(VecI a, VecI b) {
  return {_mm512_xor_si512(a.v, b.v)};
}
template <int N>
INGOT_INLINE VecI shift_left(VecI a) {
  return {_mm512_slli_epi32(a.v, N)};
}
/// Arithmetic shift.
template <int N>
INGOT_INLINE VecI shift_right(VecI a) {
  return {_mm512_srai_epi32(a.v, N)};
}
INGOT_INLINE Vec convert(VecI a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
INGOT_INLINE float reduce_max(Vec a) {
  return _mm512_reduce_max_ps(a.v);
}

}  // namespace ingot::INGOT_ISA
