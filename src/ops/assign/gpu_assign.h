// The kernels of assign.cu. Plain.
#pragma once
#include "device/gpu/launch.h"
#include "ops/assign/isa_assign.h"

namespace ingot {

/// A call of sinkhorn. Its rounds end on the device: nobody asks the host.
struct GpuSinkhorn {
  AssignRows rows;
  float* d1;        ///< that of `rows`
  float* partials;  ///< [chunks of 64 rows, E]
  int32_t* state;   ///< [2]: rounds so far, and whether they have ended
  float epsilon;
  double tolerance;
  int32_t most_rounds;
};
INGOT_GPU_KERNEL(void, launch_sinkhorn, (GpuStream stream, const GpuSinkhorn& args));

/// Each expert takes the `taken` tokens with the largest score. The matrix is [E, T] here.
INGOT_GPU_KERNEL(void, launch_expert_choice, (GpuStream stream, const AssignRows& args, int64_t taken));

}  // namespace ingot
