// From a call of add to the arguments of its kernels, the CPU's and those of GPUs.
#pragma once
#include "ops/add/isa_add.h"
#include "tape/op.h"

namespace ingot {

AddRows add_forward_rows(const OpCall& call);
/// For the gradient of b where there is a gate; d_b is nullptr where nobody wants it.
AddRows add_gated_rows(const OpCall& call);
/// For the gradient of the gate; d_gate is nullptr where nobody wants it.
AddRows add_gate_rows(const OpCall& call);

}  // namespace ingot
