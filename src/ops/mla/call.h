// From calls of mla_latents and mla_pack to the arguments of their kernels, the CPU's and those of GPUs.
#pragma once
#include "ops/mla/isa_mla.h"
#include "tape/op.h"

namespace ingot {

MlaLatentRows mla_latents_forward_rows(const OpCall& call);
MlaLatentRows mla_latents_backward_rows(const OpCall& call);
MlaPackRows mla_pack_forward_rows(const OpCall& call);
MlaPackRows mla_pack_backward_rows(const OpCall& call);
/// The reason why fast kernels do not take the call, or nullptr.
const char* refuse_mla_latents(const OpCall& call);
const char* refuse_mla_pack(const OpCall& call);

}  // namespace ingot
