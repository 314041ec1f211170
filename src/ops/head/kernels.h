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

/// Floats from row to row of a chunk of logits: the weight gradient reads columns, and rows a multiple of 4 KiB apart would
/// share a set of the caches (device/cpu/gemm_kernels.h).
inline int64_t head_row_stride(int64_t vocabulary) { return vocabulary % 1024 == 0 ? vocabulary + 16 : vocabulary; }

std::vector<Kernel> head_kernels();
Kernel head_reference();
}  // namespace ingot
