// The kernels of head.cu, over rows of logits. Plain.
#pragma once
#include "device/gpu/launch.h"
#include "ops/head/isa_head.h"

namespace ingot {

/// Caps (where the cap is above 0) and scales rows of logits in place.
struct GpuHeadLogits {
  float* logits;
  int64_t stride, vocabulary;
  SoftCapFactors cap;
  float scale;
};
INGOT_GPU_KERNEL(void, launch_head_logits, (GpuStream stream, const GpuHeadLogits& args, int64_t rows));
INGOT_GPU_KERNEL(void, launch_head_statistics, (GpuStream stream, const HeadStatistics& args, int64_t rows));
/// Cotangents of f32.
INGOT_GPU_KERNEL(void, launch_head_d_logits, (GpuStream stream, const HeadCotangents& args, int64_t rows));

}  // namespace ingot
