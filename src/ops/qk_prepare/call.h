// From a call of qk_prepare to the arguments of its kernels, the CPU's and those of GPUs.
#pragma once
#include "ops/qk_prepare/isa_qk_prepare.h"
#include "tape/op.h"

namespace ingot {

QkPrepareRows qk_prepare_forward_rows(const OpCall& call);
QkPrepareRows qk_prepare_backward_rows(const OpCall& call);
/// The reason why fast kernels do not take the call, or nullptr.
const char* refuse_qk_prepare(const OpCall& call);

}  // namespace ingot
