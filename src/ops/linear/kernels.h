// linear's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {
std::vector<Kernel> linear_kernels();
Kernel linear_reference();
/// A bf16 input gradient that accumulates is formed in fp32 first.
int64_t linear_scratch_bytes(const OpCall& call);
}  // namespace ingot
