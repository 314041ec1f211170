// The kernel of low_rank.cu. Plain.
#pragma once
#include <cstdint>

#include "device/gpu/launch.h"

namespace ingot {

/// to[i] (+)= scale * from[i].
INGOT_GPU_KERNEL(void, launch_scaled,
                 (GpuStream stream, float* to, const float* from, float scale, int64_t n, bool accumulate));

}  // namespace ingot
