// From a call of attention to the arguments of its kernels, the CPU's and those of GPUs.
#pragma once
#include "device/attention/attention.h"
#include "tape/op.h"

namespace ingot {

/// Everything but the spans and max_logit. q, k and v are columns of the packed rows.
AttentionArgs attention_arguments(const OpCall& call);
/// The same; the gradients go to packed rows at d_qkv.
AttentionBackwardArgs attention_backward_arguments(const OpCall& call, void* d_qkv);
/// The reason why fast kernels do not take the call, or nullptr.
const char* refuse_attention(const OpCall& call);

}  // namespace ingot
