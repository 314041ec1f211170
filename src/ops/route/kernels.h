// route's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "ops/op.h"

namespace ingot {
std::vector<Kernel> route_kernels();
Kernel route_reference();
/// Sums over chunks of rows.
int64_t route_scratch_bytes(const OpCall& call);
}  // namespace ingot
