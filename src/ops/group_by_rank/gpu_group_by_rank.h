// The kernels of group_by_rank.cu. Plain.
#pragma once
#include <cstdint>

#include "device/gpu/launch.h"

namespace ingot {

/// The choices of a call, and where their experts are.
struct GpuRankChoices {
  const int32_t* ids;  ///< [T, k]; one that is no expert of the model's counts as no choice
  int64_t tokens, k;
  int32_t ranks, copies, first, experts;
  int32_t experts_of_group;  ///< of each of the groups of `copies` ranks that have the same experts
  int64_t most;              ///< rows of a token
};

/// What build_rank_map() (group_by_rank.h) makes of them, and the weights of the rows.
struct GpuRankMap {
  GpuRankChoices choices;
  int64_t bound, most_choices;  ///< of a rank; 0: none
  const float* probs;           ///< [T, k]
  const int32_t* block_tokens;  ///< [blocks]; nullptr: one block has all tokens
  int64_t blocks;
  int64_t rows;         ///< S
  float* kept_probs;    ///< [S, k]
  int32_t* kept_ids;    ///< [S, k]
  int32_t* count;       ///< [n, blocks]
  int32_t* token;       ///< [S]
  int32_t* row;         ///< [T, M]
  float* dropped;       ///< [1]
  int32_t* taken;       ///< [n]: rows that each rank gets
  int32_t* dropped_of;  ///< [n]: choices on a rank that are not sent
};
INGOT_GPU_KERNEL(void, launch_rank_map, (GpuStream stream, const GpuRankMap& map));

/// The gradient of the choices' weights, from those of the rows.
struct GpuRankWeights {
  GpuRankChoices choices;
  const int32_t* row;      ///< [T, M]
  const float* d_weights;  ///< [S, k]; nullptr: zeros
  float* d_probs;          ///< [T, k]
  bool accumulate;
};
INGOT_GPU_KERNEL(void, launch_rank_weights, (GpuStream stream, const GpuRankWeights& weights));

}  // namespace ingot
