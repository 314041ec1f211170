// Software prefetch for loops over rows. The hardware prefetcher stops at the end of every 4 KiB page and
// cannot foresee gathered rows. A prefetch is only a hint: nothing is read, so the address need not be
// mapped.
#pragma once
#include <cstdint>

#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

/// Prefetch distance in each tensor: longer than a memory access takes, short beside the level 1 cache.
constexpr int64_t kPrefetchBytes = 4096;

/// Prefetches the cache line at p + bytes into the level 1 or 2 cache (kLevel).
template <int kLevel = 1>
INGOT_INLINE void prefetch_after([[maybe_unused]] const void* p,
                                 [[maybe_unused]] int64_t bytes = kPrefetchBytes) {
#if !defined(INGOT_ISA_gpu)  // other rows hide the time of an access there
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes)), 0,
      4 - kLevel);
#endif
}
/// Prefetches p .. p + bytes.
INGOT_INLINE void prefetch_range(const void* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) prefetch_after(p, i);
}
/// The prefetch distance in rows of so many bytes, at least 1.
INGOT_INLINE int64_t prefetch_rows(int64_t row_bytes) {
  return row_bytes < kPrefetchBytes ? kPrefetchBytes / (row_bytes > 0 ? row_bytes : 1) : 1;
}

}  // namespace ingot::INGOT_ISA
