// permute's and unpermute's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {
std::vector<Kernel> permute_kernels();
std::vector<Kernel> unpermute_kernels();
Kernel permute_reference();
Kernel unpermute_reference();

/// Fills offsets [E+1], token [R] and row [T*k] of permute's forward from ids [T*k]; see permute.h. An id that
/// is no expert of the model's is a bug of the caller.
void build_row_map(const OpCall& call);
}  // namespace ingot
