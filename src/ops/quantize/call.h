// From a call of quantize or dequantize to the arguments of its kernels, the CPU's and those of GPUs.
#pragma once
#include "ops/quantize/isa_quantize.h"
#include "tape/op.h"

namespace ingot {

QuantizeRows quantize_call(const OpCall& call);
DequantizeRows dequantize_call(const OpCall& call);
/// The reason why fast kernels of both do not take the call, or nullptr.
const char* refuse_quantize(const OpCall& call);

}  // namespace ingot
