// kLanes int8 numbers to and from vectors of 32-bit numbers. Included only by isa_int8.cpp and
// isa_matvec.cpp.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_avx512)
INGOT_INLINE VecI load_int8(const int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
INGOT_INLINE void store_int8(int8_t* p, VecI x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}
#elif defined(INGOT_ISA_avx2)
INGOT_INLINE VecI load_int8(const int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
}
INGOT_INLINE void store_int8(int8_t* p, VecI x) {
  int32_t words[kLanes];
  std::memcpy(words, &x.v, sizeof(words));
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(words[i]);
}
#else
INGOT_INLINE VecI load_int8(const int8_t* p) {
  VecI r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = p[i];
  return r;
}
INGOT_INLINE void store_int8(int8_t* p, VecI x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(x.v[i]);
}
#endif

}  // namespace ingot::INGOT_ISA
