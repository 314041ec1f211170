// The kernels of add.cu. Plain.
#pragma once
#include "device/gpu/launch.h"
#include "ops/add/isa_add.h"

namespace ingot {

INGOT_GPU_KERNEL(void, launch_add_forward, (GpuStream stream, const AddRows& args));
/// d_b (+)= gate * d_y.
INGOT_GPU_KERNEL(void, launch_add_gated_gradient, (GpuStream stream, const AddRows& args));
/// d_gate (+)= the sum over rows of b * d_y, in chunks of `chunk` rows whose sums are added in order.
INGOT_GPU_KERNEL(void, launch_add_gate_gradient, (GpuStream stream, const AddRows& args, int64_t chunk));

}  // namespace ingot
