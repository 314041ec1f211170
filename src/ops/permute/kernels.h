// permute's and unpermute's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "ops/op.h"

namespace ingot {
std::vector<Kernel> permute_kernels();
std::vector<Kernel> unpermute_kernels();
Kernel permute_reference();
Kernel unpermute_reference();

/// Fills offsets [E+1], token [R] and row [T*k] from ids [T*k]; see permute.h. An id outside [0, total) is a
/// bug of the caller.
void build_row_map(const int32_t* ids, int64_t tokens, int64_t k, int32_t first, int32_t experts,
                   int32_t* offsets, int32_t* token, int32_t* row);
}  // namespace ingot
