// The kernels of activation.cu. Plain.
#pragma once
#include "device/gpu/launch.h"
#include "ops/activation/isa_activation.h"

namespace ingot {

/// The rows before *end, a number on the device, at most `rows`; nullptr: all.
INGOT_GPU_KERNEL(void, launch_activation_forward,
                 (GpuStream stream, const ActivationRows& args, int64_t rows, const int32_t* end));
INGOT_GPU_KERNEL(void, launch_activation_backward,
                 (GpuStream stream, const ActivationRows& args, int64_t rows, const int32_t* end));

}  // namespace ingot
