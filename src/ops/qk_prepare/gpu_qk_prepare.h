// The kernels of qk_prepare.cu. Plain. The rotary table's numbers must be where the device reads them. A
// position outside of the table gives NaN.
#pragma once
#include "device/gpu/launch.h"
#include "ops/qk_prepare/isa_qk_prepare.h"

namespace ingot {

INGOT_GPU_KERNEL(void, launch_qk_prepare_forward,
                 (GpuStream stream, const QkPrepareRows& args, int64_t rows));
/// d_x.
INGOT_GPU_KERNEL(void, launch_qk_prepare_backward,
                 (GpuStream stream, const QkPrepareRows& args, int64_t rows));
/// The sums of each chunk of `chunk` rows for the gradients of q's weight and then of k's, which together are
/// `stride` wide.
INGOT_GPU_KERNEL(void, launch_qk_prepare_sums,
                 (GpuStream stream, const QkPrepareRows& args, int64_t rows, int64_t chunk, float* sums,
                  int64_t stride));

}  // namespace ingot
