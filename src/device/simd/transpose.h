// In-register transposes for kernel files; see simd.h for the rules.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
INGOT_INLINE void transpose8(__m256 (&r)[8]) {
  __m256 t[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  __m256 u[8];
  for (int g = 0; g < 2; ++g) {
    u[4 * g + 0] = _mm256_shuffle_ps(t[4 * g], t[4 * g + 2], 0x44);
    u[4 * g + 1] = _mm256_shuffle_ps(t[4 * g], t[4 * g + 2], 0xEE);
    u[4 * g + 2] = _mm256_shuffle_ps(t[4 * g + 1], t[4 * g + 3], 0x44);
    u[4 * g + 3] = _mm256_shuffle_ps(t[4 * g + 1], t[4 * g + 3], 0xEE);
  }
  for (int c = 0; c < 4; ++c) {
    r[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
    r[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
  }
}
INGOT_INLINE __m256 load8(const float* p) {
  return _mm256_loadu_ps(p);
}
INGOT_INLINE __m256 load8(const bf16* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
#endif

/// r[i] lane j <-> r[j] lane i.
INGOT_INLINE void transpose(Vec (&r)[kLanes]) {
#if defined(INGOT_ISA_avx512)
  __m512 t[16], u[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i].v, r[2 * i + 1].v);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i].v, r[2 * i + 1].v);
  }
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    u[4 * g + 0] = _mm512_shuffle_ps(t[4 * g], t[4 * g + 2], 0x44);
    u[4 * g + 1] = _mm512_shuffle_ps(t[4 * g], t[4 * g + 2], 0xEE);
    u[4 * g + 2] = _mm512_shuffle_ps(t[4 * g + 1], t[4 * g + 3], 0x44);
    u[4 * g + 3] = _mm512_shuffle_ps(t[4 * g + 1], t[4 * g + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 x0 = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88);
    const __m512 x1 = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xDD);
    const __m512 y0 = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
    const __m512 y1 = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xDD);
    r[c].v = _mm512_shuffle_f32x4(x0, y0, 0x88);
    r[4 + c].v = _mm512_shuffle_f32x4(x1, y1, 0x88);
    r[8 + c].v = _mm512_shuffle_f32x4(x0, y0, 0xDD);
    r[12 + c].v = _mm512_shuffle_f32x4(x1, y1, 0xDD);
  }
#elif defined(INGOT_ISA_avx2)
  __m256 t[8];
  for (int i = 0; i < 8; ++i) t[i] = r[i].v;
  transpose8(t);
  for (int i = 0; i < 8; ++i) r[i].v = t[i];
#else
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < i; ++j) {
      const float x = r[i].v[j];
      r[i].v[j] = r[j].v[i];
      r[j].v[i] = x;
    }
#endif
}

}  // namespace ingot::INGOT_ISA
