// The kernels of mla.cu. Plain. The rotary table's numbers must be where the device reads them. A position
// outside of the table gives NaN.
#pragma once
#include "device/gpu/launch.h"
#include "ops/mla/isa_mla.h"

namespace ingot {

INGOT_GPU_KERNEL(void, launch_mla_latents_forward,
                 (GpuStream stream, const MlaLatentRows& args, int64_t rows));
/// d_x.
INGOT_GPU_KERNEL(void, launch_mla_latents_backward,
                 (GpuStream stream, const MlaLatentRows& args, int64_t rows));
/// The sums of each chunk of `chunk` rows for the gradients of both norms' weights, [Q + C].
INGOT_GPU_KERNEL(void, launch_mla_latents_sums,
                 (GpuStream stream, const MlaLatentRows& args, int64_t rows, int64_t chunk, float* sums));
INGOT_GPU_KERNEL(void, launch_mla_pack_forward, (GpuStream stream, const MlaPackRows& args, int64_t rows));
INGOT_GPU_KERNEL(void, launch_mla_pack_backward, (GpuStream stream, const MlaPackRows& args, int64_t rows));

}  // namespace ingot
