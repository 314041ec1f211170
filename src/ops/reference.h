// Helpers for reference kernels. A reference computes in double whatever the dtypes: it loads whole tensors,
// runs plain loops, and stores with one rounding. It is slow on purpose: it is the readable definition of its
// op.
#pragma once
#include <vector>

#include "tape/op.h"
#include "tensor/convert.h"

namespace ingot::reference {

using Array = std::vector<double>;

/// All elements of a floating tensor as doubles; empty for an undefined tensor.
inline Array load(const Tensor& t) {
  return to_doubles(t);
}
/// All elements of an i32 tensor.
inline std::vector<int32_t> load_ints(const Tensor& t) {
  return to_ints(t);
}
/// Rounds `values` into the tensor; sizes must agree.
inline void store(const Tensor& t, const Array& values) {
  store_rounded(t, values);
}
/// The same for a gradient: overwrites or accumulates; does nothing if nobody wants it.
inline void store(const GradSlot& slot, Array values) {
  if (!slot.wanted()) return;
  if (slot.accumulate) {
    const Array before = load(slot.tensor);
    INGOT_CHECK(before.size() == values.size(), "{} values for {}", values.size(), slot.tensor.meta.str());
    for (size_t i = 0; i < values.size(); ++i) values[i] += before[i];
  }
  store(slot.tensor, values);
}

/// refuse() of every reference: accepts anything.
inline const char* accept(const OpCall&) {
  return nullptr;
}

}  // namespace ingot::reference
