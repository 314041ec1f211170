// The shape of the register tile, shared by the packing and the tile itself. Included only by isa_gemm*.cpp.
//
// 8 x 48 with AVX-512 (24 accumulators, 3 vectors of B, broadcasts of A), 4 x 24 with AVX2 and 4 x 12
// otherwise: per step it loads kRows + kVecs times for kRows * kVecs multiply-adds, under one load per
// multiply-add everywhere.
#pragma once
#include "device/cpu/simd.h"

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_avx512)
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif
constexpr int kVecs = 3;
constexpr int kCols = kVecs * kLanes;

INGOT_INLINE int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}
/// Words of a packed row of `cols` columns.
INGOT_INLINE int64_t width_of(int64_t cols) {
  return (cols + kLanes - 1) / kLanes * kLanes;
}

}  // namespace ingot::INGOT_ISA
