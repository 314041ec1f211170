// The kernels of capacity.cu. Plain.
#pragma once
#include <cstdint>

#include "device/gpu/launch.h"

namespace ingot {

struct GpuCapacity {
  int64_t slots;
  int32_t experts;
  int64_t limit;   ///< choices that an expert keeps
  bool by_weight;  ///< the largest weights; else the first
  const float* probs;
  const int32_t* ids;
  float* kept_probs;
  int32_t* kept_ids;
  float* dropped;
};
INGOT_GPU_KERNEL(void, launch_capacity, (GpuStream stream, const GpuCapacity& args));

/// d_probs (+)= d_kept where a choice was kept, else 0. d_kept: nullptr: 0.
struct GpuCapacityGradient {
  int64_t slots;
  const int32_t* kept_ids;
  const float* d_kept;
  float* d_probs;
  bool accumulate;
};
INGOT_GPU_KERNEL(void, launch_capacity_gradient, (GpuStream stream, const GpuCapacityGradient& args));

}  // namespace ingot
