// grouped_linear's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {
std::vector<Kernel> grouped_linear_kernels();
Kernel grouped_linear_reference();
/// A bf16 input gradient that accumulates is formed in fp32 first.
int64_t grouped_linear_scratch_bytes(const OpCall& call);
}  // namespace ingot
