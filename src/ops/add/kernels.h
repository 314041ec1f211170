// add's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {
std::vector<Kernel> add_kernels();
Kernel add_reference();
}  // namespace ingot
