// One k-step of a matrix product: the fused multiply-adds that numerics rule 2 defines, in ascending k; and
// whole or partial vectors of columns. Shared by the micro-kernel and the products of few rows. Included only
// by isa_gemm.cpp and isa_matvec.cpp.
#pragma once
#include "device/gemm/gemm_shape.h"
#include "device/simd/simd.h"
#if !defined(INGOT_ISA_generic)
#include <immintrin.h>
#endif

namespace ingot::INGOT_ISA {

// ---- k-steps

/// One k in f32.
struct F32Step {
  static INGOT_INLINE Vec step(Vec a, Vec b, Vec acc) { return fma(a, b, acc); }
};

#if defined(INGOT_ISA_avx512)
/// Two k in bf16 by the processor's dot product: the odd one first, each a fused multiply-add of its own;
/// subnormal operands, sums and results are zeros.
struct DotProductStep {
  static INGOT_INLINE Vec step(Vec a, Vec b, Vec acc) {
    return {_mm512_dpbf16_ps(acc.v, (__m512bh)a.v, (__m512bh)b.v)};
  }
};
#endif

#if defined(INGOT_ISA_generic)
INGOT_INLINE float flushed(float x) {
  return __builtin_fabsf(x) < __FLT_MIN__ ? __builtin_copysignf(0.0f, x) : x;
}
/// fma that flushes subnormals as the vector sets do: a result is subnormal if its value rounded to 24 bits
/// with an unbounded exponent is, which only matters where the result seems to be the smallest normal number.
__attribute__((noinline)) inline float flushing_fma(float a, float b, float acc) {
  a = flushed(a), b = flushed(b), acc = flushed(acc);
  const float x = __builtin_fmaf(a, b, acc);
  if (__builtin_fabsf(x) != __FLT_MIN__) return flushed(x);
  const float scaled = __builtin_fmaf(a * 0x1p32f, b * 0x1p32f, acc * 0x1p64f);
  return __builtin_fabsf(scaled) < __FLT_MIN__ * 0x1p64f ? __builtin_copysignf(0.0f, x) : x;
}
INGOT_INLINE Vec flushing_fma(Vec a, Vec b, Vec acc) {
  Vec r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = flushing_fma(a.v[i], b.v[i], acc.v[i]);
  return r;
}
#else
/// fma; the micro-kernel sets the mode that flushes subnormals.
INGOT_INLINE Vec flushing_fma(Vec a, Vec b, Vec acc) {
  return fma(a, b, acc);
}
#endif

/// The bits of DotProductStep by two fused multiply-adds.
struct TwoFmaStep {
  static INGOT_INLINE Vec high(Vec x) {
    return as_float(as_int(x) & set1i(static_cast<int32_t>(0xFFFF0000u)));
  }
  static INGOT_INLINE Vec low(Vec x) { return as_float(shift_left<16>(as_int(x))); }
  static INGOT_INLINE Vec step(Vec a, Vec b, Vec acc) {
    return flushing_fma(low(a), low(b), flushing_fma(high(a), high(b), acc));
  }
};

/// Makes this thread's vector arithmetic flush subnormal operands and results to zero; returns the mode
/// before.
INGOT_INLINE unsigned flush_subnormals() {
#if defined(INGOT_ISA_generic)
  return 0;  // flushing_fma does it
#else
  constexpr unsigned kFlushResults = 0x8000, kFlushOperands = 0x0040;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushResults | kFlushOperands);
  return before;
#endif
}
INGOT_INLINE void restore_mode(unsigned mode) {
#if !defined(INGOT_ISA_generic)
  _mm_setcsr(mode);
#endif
}

// ---- columns of a micro-panel

template <int NV>
INGOT_INLINE Vec load_cols(const float* p, int v, int cols) {
  return v + 1 < NV || cols == NV * kLanes ? load(p + v * kLanes)
                                           : load_tail(p + v * kLanes, cols - v * kLanes);
}
template <int NV>
INGOT_INLINE Vec load_cols(const bf16* p, int v, int cols) {
  return v + 1 < NV || cols == NV * kLanes ? load(p + v * kLanes)
                                           : load_tail(p + v * kLanes, cols - v * kLanes);
}
template <int NV, class T>
INGOT_INLINE void store_cols(T* p, int v, int cols, Vec x) {
  if (v + 1 < NV || cols == NV * kLanes)
    store(p + v * kLanes, x);
  else
    store_tail(p + v * kLanes, x, cols - v * kLanes);
}

}  // namespace ingot::INGOT_ISA
