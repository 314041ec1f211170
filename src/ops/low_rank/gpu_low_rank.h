// The kernel of low_rank.cu. Plain.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/gpu/launch.h"

namespace ingot {

/// to[i] (+)= scale * from[i]; both f32 or bf16.
struct GpuScaled {
  void* to;
  DType to_type;
  const void* from;
  DType from_type;
  float scale;
  int64_t n;
  bool accumulate;
};
INGOT_GPU_KERNEL(void, launch_scaled, (GpuStream stream, const GpuScaled& args));

}  // namespace ingot
