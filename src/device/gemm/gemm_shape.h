// The shape of the micro-kernel's register tile, mr x nr, and the helpers that packing and micro-kernel
// share. Included only by isa_*.cpp of this folder.
//
// mr x nr is 8 x 48 with AVX-512 (24 accumulators, 3 vectors of B, broadcasts of A) and 4 x 24 with AVX2: a
// k-step loads mr + kVecs times for mr * kVecs multiply-adds. A thread's two packed panels of B, kMaxKc
// k-steps each, take 3/4 of a level 2 cache of 1 MiB with AVX-512, and 3/8 of one of 512 KiB with AVX2 (Zen
// 3, products of GPT-2's shape: .77 of peak; .73 with 3/4, .71 with 3/16). The generic set, where each fma is
// a call of the library, has 4 x 4, so that it compiles quickly.
#pragma once
#include "base/round.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

#if defined(INGOT_ISA_avx512)
constexpr int kMr = 8, kVecs = 3, kMaxKc = 1024;
#elif defined(INGOT_ISA_avx2)
constexpr int kMr = 4, kVecs = 3, kMaxKc = 512;
#else
constexpr int kMr = 4, kVecs = 1, kMaxKc = 512;
#endif
constexpr int kRowGroup = 2 * kMr;  // rows whose A is packed together, and whose C is transposed together
constexpr int kNr = kVecs * kLanes;

/// Words of a packed row of `cols` columns.
INGOT_INLINE int64_t width_of(int64_t cols) {
  return round_up(cols, kLanes);
}

/// Calls f.operator()<N>() for the N in 1 .. kMost that `n` is.
template <int kMost, class F>
INGOT_INLINE auto with_constant(int64_t n, F&& f) {
  if constexpr (kMost > 1)
    if (n < kMost) return with_constant<kMost - 1>(n, f);
  return f.template operator()<kMost>();
}

/// n pairs from two rows of bf16 (or of f32 rounded to it); `odd` is nullptr beyond an odd k.
template <class T>
INGOT_INLINE Vec join_rows(const T* even, const T* odd, int n) {
  const Vec low = n == kLanes ? load(even) : load_tail(even, n);
  const Vec high = odd == nullptr ? zero() : n == kLanes ? load(odd) : load_tail(odd, n);
  return as_float((shift_right<16>(as_int(low)) & set1i(0xFFFF)) | as_int(high));
}

}  // namespace ingot::INGOT_ISA
