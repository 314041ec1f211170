// assign's implementations, best first, and the row functions of isa_assign.cpp (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {
std::vector<Kernel> assign_kernels();
Kernel assign_reference();
int64_t assign_scratch_bytes(const OpCall& call);
}  // namespace ingot
