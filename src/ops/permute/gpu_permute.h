// The kernels of permute.cu. Plain.
#pragma once
#include <cstdint>

#include "device/gpu/launch.h"

namespace ingot {

/// The map of permute (permute.h), as build_row_map() makes it, and the weights of its rows. Choices beyond
/// `rows`, or beyond `bound` of an expert, have no row, and then every weight is NaN, which stops a run
/// before its update.
struct GpuRowMap {
  const int32_t* ids;  ///< [slots]
  int64_t slots, k;
  int32_t first, experts;
  int64_t bound;       ///< most rows of an expert; 0: none
  bool pad;            ///< every expert has `bound` rows
  int64_t rows;        ///< of the result
  const float* probs;  ///< [slots]
  int32_t* offsets;    ///< [experts + 1]
  int32_t* token;      ///< [rows]
  int32_t* row;        ///< [slots]
  float* p;            ///< [rows]
};
INGOT_GPU_KERNEL(void, launch_row_map, (GpuStream stream, const GpuRowMap& map));

/// to[s] (+)= from[row[s]]; a slot without a row, or without `from`, gets 0.
struct GpuSlotValues {
  const int32_t* row;  ///< [slots]
  int64_t slots;
  const float* from;  ///< nullptr: zeros
  float* to;
  bool accumulate;
};
INGOT_GPU_KERNEL(void, launch_slot_values, (GpuStream stream, const GpuSlotValues& values));

}  // namespace ingot
