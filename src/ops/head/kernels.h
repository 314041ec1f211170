// head's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "ops/op.h"

namespace ingot {

/// Slots of the op, in order.
namespace head_slot {
enum In : uint32_t { x, weight, targets, teacher, row_weight };
enum Out : uint32_t { logprob, lse, entropy, kl, best, logits, d_x };
}  // namespace head_slot

std::vector<Kernel> head_kernels();
Kernel head_reference();
}  // namespace ingot
