// qk_prepare's implementations, best first, and the interface of the fast one (internal to the folder).
#pragma once
#include <vector>

#include "ops/qk_prepare/row_kernels.h"
#include "tape/op.h"

namespace ingot {
std::vector<Kernel> qk_prepare_kernels();
Kernel qk_prepare_reference();
int64_t qk_prepare_scratch_bytes(const OpCall& call);
}  // namespace ingot
