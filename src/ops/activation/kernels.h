// activation's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {
std::vector<Kernel> activation_kernels();
Kernel activation_reference();
}  // namespace ingot
