// The shape of the register tile and its words, shared by the packing and the tile itself. Included only by isa_gemm*.cpp.
//
// 8 x 48 with AVX-512 (24 accumulators, 3 vectors of B, broadcasts of A), 4 x 24 with AVX2 and 4 x 12
// otherwise: per step it loads kRows + kVecs times for kRows * kVecs multiply-adds, under one load per
// multiply-add everywhere.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_avx512)
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif
constexpr int kGroup = 2 * kRows;  // rows whose A is packed together, and whose C is turned together
constexpr int kVecs = 3;
constexpr int kCols = kVecs * kLanes;

INGOT_INLINE int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
INGOT_INLINE int64_t round_up(int64_t a, int64_t b) {
  return (a + b - 1) / b * b;
}
/// Words of a packed row of `cols` columns.
INGOT_INLINE int64_t width_of(int64_t cols) {
  return round_up(cols, kLanes);
}

/// n pairs from two rows that are, or count as, bf16; `odd` is nullptr beyond an odd k.
template <class T>
INGOT_INLINE Vec join_rows(const T* even, const T* odd, int n) {
  const Vec low = n == kLanes ? load(even) : load_tail(even, n);
  const Vec high = odd == nullptr ? zero() : n == kLanes ? load(odd) : load_tail(odd, n);
  return as_float((shift_right<16>(as_int(low)) & set1i(0xFFFF)) | as_int(high));
}

}  // namespace ingot::INGOT_ISA
