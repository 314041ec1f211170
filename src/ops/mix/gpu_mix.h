// The kernels of mix.cu. Plain.
#pragma once
#include "device/gpu/launch.h"
#include "ops/mix/isa_mix.h"

namespace ingot {

INGOT_GPU_KERNEL(void, launch_mix_forward, (GpuStream stream, const MixRows& args, int64_t rows));
INGOT_GPU_KERNEL(void, launch_mix_backward, (GpuStream stream, const MixRows& args, int64_t rows));
/// For each chunk of 64 rows the sums of mix_scalar_sums(), two floats.
INGOT_GPU_KERNEL(void, launch_mix_sums, (GpuStream stream, const MixRows& args, int64_t rows, float* sums));

}  // namespace ingot
