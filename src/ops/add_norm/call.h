// From a call of add_norm to the arguments of its kernels, the CPU's and those of GPUs.
#pragma once
#include "ops/add_norm/isa_add_norm.h"
#include "tape/op.h"

namespace ingot {

/// Sums of a chunk of rows, [D] each, in the order of AddNormSums: scratch begins with those of all chunks.
inline constexpr int64_t kAddNormSums = 5;

AddNormRows add_norm_forward_rows(const OpCall& call);
/// Without `terms`.
AddNormRows add_norm_backward_rows(const OpCall& call);
/// The reason why fast kernels do not take the call, or nullptr.
const char* refuse_add_norm(const OpCall& call);

}  // namespace ingot
