// low_rank's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {
std::vector<Kernel> low_rank_kernels();
Kernel low_rank_reference();
/// The scaled h, a gradient before it is scaled, and for bf16 results the sums before they are rounded.
int64_t low_rank_scratch_bytes(const OpCall& call);
}  // namespace ingot
