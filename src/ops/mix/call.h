// From a call of mix to the arguments of its kernels, the CPU's and those of GPUs.
#pragma once
#include "ops/mix/isa_mix.h"
#include "tape/op.h"

namespace ingot {

MixRows mix_forward_rows(const OpCall& call);
MixRows mix_backward_rows(const OpCall& call);
/// For the scalars' gradients.
MixRows mix_scalar_rows(const OpCall& call);

}  // namespace ingot
