// embedding's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {
std::vector<Kernel> embedding_kernels();
Kernel embedding_reference();
/// The tokens sorted by id, for the gradient.
int64_t embedding_scratch_bytes(const OpCall& call);
}  // namespace ingot
