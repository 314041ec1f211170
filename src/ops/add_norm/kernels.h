// add_norm's implementations, best first, and the order of its slots (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {

namespace add_norm_slot {
enum In : uint32_t { kX, kY, kStreamScale, kStreamBias, kYScale, kYBias, kWeight, kBias };
enum Out : uint32_t { kStream, kH, kRstd, kMean };
}  // namespace add_norm_slot

/// Width of a row; backward reads x or the merged stream.
inline int64_t add_norm_width(const OpCall& call) {
  const Tensor& x = call.in[add_norm_slot::kX];
  return (x.defined() ? x : call.out[add_norm_slot::kStream]).dim(1);
}

std::vector<Kernel> add_norm_kernels();
Kernel add_norm_reference();
int64_t add_norm_scratch_bytes(const OpCall& call);

}  // namespace ingot
