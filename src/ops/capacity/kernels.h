// capacity's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {
std::vector<Kernel> capacity_kernels();
Kernel capacity_reference();
}  // namespace ingot
