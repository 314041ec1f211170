// linear and then activation (ops/activation), whose two nodes a device may run forward by one kernel:
// products of bf16 on tensor cores do, where the function is not gated.
//
// Shapes: x_TK, weight_NK, bias_N -> f(x W^T + b) of attr.out, the type of x W^T + b too.
#pragma once
#include "ops/activation/activation.h"

namespace ingot {

Value linear_activation(Tape& tape, const ActivationAttr& attr, const Value& x_TK, const Value& weight_NK,
                        const Value& bias_N = {});

}  // namespace ingot
