// A sum in double whose terms a block's threads form and whose order is theirs; for *.cu.
#pragma once
#include "device/gpu/rt.h"

namespace ingot::INGOT_ISA {

constexpr int kMostTermThreads = 256;  ///< of the block

struct Terms {
  double x[kMostTermThreads];
};
/// The sum of term(i), i < n, in ascending order, which thread 0 knows; every thread of the block comes here.
template <class F>
INGOT_INLINE double ordered_sum(Terms& terms, int64_t n, F&& term) {
  const int64_t threads = block_size();
  double sum = 0;
  for (int64_t first = 0; first < n; first += threads) {
    const int64_t i = first + thread_index(), count = n - first < threads ? n - first : threads;
    if (i < n) terms.x[thread_index()] = term(i);
    sync_threads();
    for (int64_t j = 0; thread_index() == 0 && j < count; ++j) sum += terms.x[j];
    sync_threads();
  }
  return sum;
}

}  // namespace ingot::INGOT_ISA
