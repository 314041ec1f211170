// Asking for memory before a loop over rows reaches it. The hardware's prefetcher stops at the end of every page of 4 KiB,
// and a loop over several tensors is at the end of one all the time; gathered rows it does not foresee at all. Only a hint:
// nothing is read, so the place need not exist.
#pragma once
#include <cstdint>

#include "device/cpu/simd.h"

namespace ingot::INGOT_ISA {

constexpr int64_t kAheadBytes =
    4096;  ///< of each tensor: longer than memory takes, short beside the level 1 cache

/// What lies `bytes` behind p. kLevel: of the cache, 1 or 2.
template <int kLevel = 1>
INGOT_INLINE void fetch_ahead(const void* p, int64_t bytes = kAheadBytes) {
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes)), 0,
      4 - kLevel);
}
/// All of p .. p + bytes.
INGOT_INLINE void fetch_bytes(const void* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) fetch_ahead(p, i);
}
/// How many rows of so many bytes lie ahead.
INGOT_INLINE int64_t rows_ahead(int64_t row_bytes) {
  return row_bytes < kAheadBytes ? kAheadBytes / (row_bytes > 0 ? row_bytes : 1) : 1;
}

}  // namespace ingot::INGOT_ISA
