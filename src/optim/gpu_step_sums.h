// The kernels of step_sums.cu: what micro-batches add to sums on the device (step_sums.h). Plain.
#pragma once
#include <cstdint>

#include "device/gpu/launch.h"

namespace ingot {

/// The order in which it adds is its own: nothing but whether the sum is finite follows from it.
struct GpuLogprobs {
  const float* logprob;
  const int32_t* targets;
  int64_t rows;
  double* sum;
};
INGOT_GPU_KERNEL(void, launch_add_logprobs, (GpuStream stream, const GpuLogprobs& args));

struct GpuValues {
  const float* values;
  int64_t count;
  bool largest;
  double* sums;
};
INGOT_GPU_KERNEL(void, launch_add_values, (GpuStream stream, const GpuValues& args));

}  // namespace ingot
