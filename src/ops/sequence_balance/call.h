// Which calls of sequence_balance its kernels take, the CPU's and those of GPUs.
#pragma once
#include "tape/op.h"

namespace ingot {

/// The reason why fast kernels do not take the call, or nullptr.
const char* refuse_sequence_balance(const OpCall& call);

}  // namespace ingot
