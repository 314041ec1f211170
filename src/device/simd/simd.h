// Vectors of floats for kernel files, one definition per instruction set: avx512 (16 lanes), avx2 (8),
// generic (4), scalar (1), and GPUs (16, over 4 threads). Included only by isa_*.cpp, vmath_scalar.cpp and
// *.cu, directly or by a rows.h, the text that an op's kernels for both share; everything lives in the
// namespace of its set, so nothing compiled for one machine can be linked into code for another
// (docs/numerics.md rule 6).
//
// Every operation is exact to the bit across the sets: fma is one rounding, max(a, b) is a > b ? a : b (b
// when either is NaN), bf16 rounds to nearest even and keeps subnormals (the vcvtneps2bf16 instruction
// flushes them, so it is not used).
#pragma once
#if !defined(INGOT_ISA)
#error "simd.h is for isa_*.cpp, vmath_scalar.cpp and *.cu only"
#endif
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#if defined(INGOT_ISA_avx512) || defined(INGOT_ISA_avx2)
#include <immintrin.h>
#endif

#if defined(INGOT_ISA_gpu)
#include "device/gpu/rt.h"
#else
#define INGOT_INLINE inline __attribute__((always_inline))
/// What functions of rows.h that are not inlined are for a GPU's compiler.
#define INGOT_DEVICE_CODE
#endif

#if defined(INGOT_ISA_gpu)
#include "device/simd/simd_gpu.h"
#elif defined(INGOT_ISA_avx512)
#include "device/simd/simd_avx512.h"
#elif defined(INGOT_ISA_avx2)
#include "device/simd/simd_avx2.h"
#else
#include "device/simd/simd_generic.h"
#endif

namespace ingot::INGOT_ISA {

INGOT_INLINE int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
INGOT_INLINE int64_t max64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

#if !defined(INGOT_ISA_gpu)
/// Whether this thread writes the scalars of a row: on a GPU one of those that share its vectors does.
INGOT_INLINE bool writes_scalars() {
  return true;
}
INGOT_INLINE float square_root(float x) {
  return __builtin_sqrtf(x);
}
#endif

/// Each rounded to bf16 and widened again.
INGOT_INLINE Vec rounded_to_bf16(Vec x) {
  const VecI u = as_int(x);
  const VecI up = u + set1i(0x7FFF) + (shift_right<16>(u) & set1i(1));
  const Vec kept = select(is_nan(x), as_float(u | set1i(0x400000)), as_float(up));
  return as_float(as_int(kept) & set1i(static_cast<int32_t>(0xFFFF0000u)));
}
INGOT_INLINE Vec load(const RoundedFloat* p) {
  return rounded_to_bf16(load(reinterpret_cast<const float*>(p)));
}
INGOT_INLINE Vec load_tail(const RoundedFloat* p, int n) {
  return rounded_to_bf16(load_tail(reinterpret_cast<const float*>(p), n));
}

}  // namespace ingot::INGOT_ISA
