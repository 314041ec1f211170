// The implementations of the latent attention ops, best first (internal to the folder).
#pragma once
#include <vector>

#include "ops/mla/mla.h"
#include "tape/op.h"

namespace ingot {

std::vector<Kernel> mla_latents_kernels();
std::vector<Kernel> mla_pack_kernels();
std::vector<Kernel> mla_cached_kernels();
Kernel mla_latents_reference();
Kernel mla_pack_reference();
Kernel mla_cached_reference();
int64_t mla_latents_scratch_bytes(const OpCall& call);

namespace mla_latents_slot {
enum In : uint32_t { kDown, kPositions, kQWeight, kKvWeight };
enum Out : uint32_t { kQLatent, kC, kKRope, kRstd };
}  // namespace mla_latents_slot
namespace mla_pack_slot {
enum In : uint32_t { kQ, kPositions, kKv, kKRope };
}
namespace mla_cached_slot {
enum In : uint32_t { kQ, kC, kKRope, kKvUp };
}

/// First token that token t of a sequence sees.
inline int64_t mla_first_key(const MlaCachedAttr& a, int64_t t) {
  return a.window > 0 && t >= a.window ? t - a.window + 1 : 0;
}

}  // namespace ingot
