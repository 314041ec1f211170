// The kernel of parameter_chunks.cu. Plain.
#pragma once
#include "device/gpu/launch.h"

namespace ingot {

/// combine_parameter_chunks() (parameter_chunks.h) on a GPU: to[i * step] (+)= the sum over chunks of
/// partials[c * stride + i], times scale[i] each where there is a scale.
struct GpuParameterSum {
  const float* partials;
  int64_t chunks, stride, width;
  const float* scale;  ///< nullptr: 1
  float* to;           ///< nullptr: nobody wants it
  bool accumulate;
  int64_t step = 1;
};
INGOT_GPU_KERNEL(void, launch_parameter_sum, (GpuStream stream, const GpuParameterSum& sum));

}  // namespace ingot
