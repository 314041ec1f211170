// grouped_linear's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "ops/op.h"

namespace ingot {
std::vector<Kernel> grouped_linear_kernels();
Kernel grouped_linear_reference();
}  // namespace ingot
