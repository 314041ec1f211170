// Counts of the threads of a block, in their order; for *.cu.
#pragma once
#include "device/gpu/rt.h"

namespace ingot::INGOT_ISA {

constexpr int kCountThreads = 256, kCountGroup = 16;  ///< threads of such a block

struct BlockCounts {
  int32_t own[kCountThreads];
  int32_t group[kCountThreads / kCountGroup];
};

struct Count {
  int32_t before, all;
};

/// The sum of the counts of the threads before this one, and of all; every thread of the block comes here.
INGOT_INLINE Count count_before(BlockCounts& counts, int32_t own) {
  const int t = static_cast<int>(thread_index());
  counts.own[t] = own;
  sync_threads();
  if (t < kCountThreads / kCountGroup) {
    int32_t sum = 0;
    for (int i = 0; i < kCountGroup; ++i) sum += counts.own[t * kCountGroup + i];
    counts.group[t] = sum;
  }
  sync_threads();
  Count c{0, 0};
  for (int g = 0; g < kCountThreads / kCountGroup; ++g) {
    if (g < t / kCountGroup) c.before += counts.group[g];
    c.all += counts.group[g];
  }
  for (int i = t / kCountGroup * kCountGroup; i < t; ++i) c.before += counts.own[i];
  sync_threads();
  return c;
}

}  // namespace ingot::INGOT_ISA
