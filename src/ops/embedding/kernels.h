// embedding's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "ops/op.h"

namespace ingot {
std::vector<Kernel> embedding_kernels();
}  // namespace ingot
