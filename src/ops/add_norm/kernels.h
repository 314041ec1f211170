// add_norm's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "ops/op.h"

namespace ingot {
std::vector<Kernel> add_norm_kernels();
void add_norm_reference_forward(const OpCall& call);
void add_norm_reference_backward(const OpCall& call);
}  // namespace ingot
