// The kernels of add_norm.cu. Plain.
#pragma once
#include "device/gpu/launch.h"
#include "ops/add_norm/isa_add_norm.h"

namespace ingot {

INGOT_GPU_KERNEL(void, launch_add_norm_forward, (GpuStream stream, const AddNormRows& args, int64_t rows));
INGOT_GPU_KERNEL(void, launch_add_norm_backward, (GpuStream stream, const AddNormRows& args, int64_t rows));
/// After backward: the sums of each chunk of `chunk` rows. Those of chunk c begin c * stride floats beyond
/// those of the first, which are at `sums`.
INGOT_GPU_KERNEL(void, launch_add_norm_sums,
                 (GpuStream stream, const AddNormRows& args, int64_t rows, int64_t chunk,
                  const AddNormSums& sums, int64_t stride));

}  // namespace ingot
