// From a call of activation to the arguments of its kernels, the CPU's and those of GPUs.
#pragma once
#include "ops/activation/activation.h"
#include "ops/activation/isa_activation.h"
#include "tape/op.h"

namespace ingot {

ActivationFunction function_of(ActivationKind kind);
ActivationRows activation_forward_rows(const OpCall& call);
ActivationRows activation_backward_rows(const OpCall& call);
/// The reason why fast kernels do not take the call, or nullptr.
const char* refuse_activation(const OpCall& call);

}  // namespace ingot
