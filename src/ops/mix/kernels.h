// mix's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "tape/op.h"

namespace ingot {

/// Slots of the op, in order.
namespace mix_slot {
enum In : uint32_t { kA, kB, kAlpha, kBeta };
}

std::vector<Kernel> mix_kernels();
Kernel mix_reference();
int64_t mix_scratch_bytes(const OpCall& call);

}  // namespace ingot
