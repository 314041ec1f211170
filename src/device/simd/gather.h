// A gather's sum for kernels of every instruction set and of GPUs; see row_functions.h.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/row_functions.h"

namespace ingot::INGOT_ISA {

/// Of the n elements from i on: the sum of the rows that the k indices name, in their order.
template <class From>
INGOT_INLINE Vec gathered_sum(const GatherArgs& a, const int32_t* index, int64_t i, int n) {
  Vec sum = zero();
  for (int64_t j = 0; j < a.k; ++j)
    if (index[j] >= 0) sum = sum + load_n(static_cast<const From*>(a.from) + index[j] * a.width + i, n);
  return sum;
}

/// Whether the row is a copy: a single addend keeps the sign of its zeros.
INGOT_INLINE bool is_copy(const GatherArgs& a, const int32_t* index) {
  return a.k == 1 && index[0] >= 0;
}

}  // namespace ingot::INGOT_ISA
