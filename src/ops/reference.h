// Helpers for reference kernels. A reference computes in double whatever the dtypes: it loads whole tensors, runs plain
// loops, and stores with one rounding. Slow on purpose and by design the readable definition of its op.
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot::reference {

using Array = std::vector<double>;

/// All elements of a floating tensor as doubles; empty for an undefined tensor.
Array load(const Tensor& t);
/// All elements of an i32 tensor.
std::vector<int32_t> load_ints(const Tensor& t);
/// Rounds `values` into the tensor; sizes must agree.
void store(const Tensor& t, const Array& values);
/// The same for a gradient: overwrites or accumulates; does nothing if nobody wants it.
void store(const GradSlot& slot, const Array& values);

/// refuse() of every reference: accepts anything.
inline const char* accept(const OpCall&) {
  return nullptr;
}

}  // namespace ingot::reference
