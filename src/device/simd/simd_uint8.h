// kLanes bytes to and from vectors of 32-bit numbers, of which the lowest byte is stored; see simd.h for the
// rules. On a GPU each thread touches its lanes' bytes alone.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_gpu)
INGOT_INLINE VecI load_bytes_n(const uint8_t* p, int n) {
  return four_ints([&](int i) { return first_lane() + i < n ? p[first_lane() + i] : 0; });
}
INGOT_INLINE void store_bytes_n(uint8_t* p, VecI x, int n) {
  INGOT_UNROLL
  for (int i = 0; i < kLanesOfThread; ++i)
    if (first_lane() + i < n) p[first_lane() + i] = static_cast<uint8_t>(x.v[i]);
}
#else
#if defined(INGOT_ISA_avx512)
INGOT_INLINE VecI load_bytes(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
INGOT_INLINE void store_bytes(uint8_t* p, VecI x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}
#elif defined(INGOT_ISA_avx2)
INGOT_INLINE VecI load_bytes(const uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
}
INGOT_INLINE void store_bytes(uint8_t* p, VecI x) {
  const __m256i low = _mm256_and_si256(x.v, _mm256_set1_epi32(0xFF));
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
}
#else
INGOT_INLINE VecI load_bytes(const uint8_t* p) {
  VecI r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = p[i];
  return r;
}
INGOT_INLINE void store_bytes(uint8_t* p, VecI x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint8_t>(x.v[i]);
}
#endif
/// The first n (0..kLanes) bytes; the others are 0 and are not read.
INGOT_INLINE VecI load_bytes_n(const uint8_t* p, int n) {
  if (n == kLanes) return load_bytes(p);
  uint8_t all[kLanes] = {};
  for (int i = 0; i < n; ++i) all[i] = p[i];
  return load_bytes(all);
}
/// Writes the first n (0..kLanes) bytes only.
INGOT_INLINE void store_bytes_n(uint8_t* p, VecI x, int n) {
  if (n == kLanes) return store_bytes(p, x);
  uint8_t all[kLanes];
  store_bytes(all, x);
  for (int i = 0; i < n; ++i) p[i] = all[i];
}
#endif

}  // namespace ingot::INGOT_ISA
