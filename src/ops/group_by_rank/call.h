// Which calls of group_by_rank its kernels take, the CPU's and those of GPUs.
#pragma once
#include "tape/op.h"

namespace ingot {

/// The reason why fast kernels do not take the call, or nullptr.
const char* refuse_group_by_rank(const OpCall& call);

}  // namespace ingot
