// linear's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "ops/op.h"

namespace ingot {
std::vector<Kernel> linear_kernels();
Kernel linear_reference();
}  // namespace ingot
