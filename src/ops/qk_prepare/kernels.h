// qk_prepare's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "ops/op.h"

namespace ingot {
std::vector<Kernel> qk_prepare_kernels();
Kernel qk_prepare_reference();
}  // namespace ingot
