// Vectors of floats for kernel files, one definition per instruction set: avx512 (16 lanes), avx2 (8),
// generic (4) and scalar (1). Included only by isa_*.cpp and vmath_scalar.cpp; everything lives in the
// namespace of its set, so nothing compiled for one machine can be linked into code for another
// (docs/numerics.md rule 6).
//
// Every operation is exact to the bit across the sets: fma is one rounding, max(a, b) is a > b ? a : b (b
// when either is NaN), bf16 rounds to nearest even and keeps subnormals (the vcvtneps2bf16 instruction
// flushes them, so it is not used).
#pragma once
#if !defined(INGOT_ISA)
#error "simd.h is for isa_*.cpp and vmath_scalar.cpp only"
#endif
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"
#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
#include <immintrin.h>
#endif

#define INGOT_INLINE inline __attribute__((always_inline))

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_avx512)

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

#elif defined(INGOT_ISA_avx2)

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

#else  // generic and scalar: the compiler's own vectors

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

#endif

}  // namespace ingot::INGOT_ISA
