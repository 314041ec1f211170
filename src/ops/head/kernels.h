// head's implementations, best first (internal to the folder).
#pragma once
#include <algorithm>
#include <vector>

#include "tape/op.h"

namespace ingot {

/// Slots of the op, in order.
namespace head_slot {
enum In : uint32_t { x, weight, targets, teacher, row_weight };
enum Out : uint32_t { logprob, lse, entropy, kl, best, logits, d_x };
}  // namespace head_slot

/// Floats from row to row of a chunk of logits: the weight gradient reads columns, and rows a multiple of 4 KiB apart would
/// share a set of the caches (device/gemm/gemm_kernels.h).
inline int64_t head_row_stride(int64_t vocabulary) {
  return vocabulary % 1024 == 0 ? vocabulary + 16 : vocabulary;
}

/// Rows of a chunk, without a choice of the attribute: as many as 32 MiB of logits and input gradients hold, at least 256. Few would pack
/// the weight anew for little work each, and add up its gradient as often.
inline int64_t head_chunk(int32_t chosen, int64_t rows, int64_t vocabulary, int64_t width) {
  constexpr int64_t kRoom = int64_t{8} << 20, kLeast = 256, kRound = 16;
  const int64_t fitting =
      chosen > 0 ? chosen
                 : std::max(kLeast, kRoom / std::max<int64_t>(vocabulary + width, 1) / kRound * kRound);
  return std::clamp<int64_t>(rows, 1, fitting);
}

std::vector<Kernel> head_kernels();
Kernel head_reference();
}  // namespace ingot
