// The end of a step by the kernels of GPUs (gpu_optim.h): from tensors to launches. Here they are emulated,
// for host code that is a kernel of the simulated device: addresses are those of the host.
#pragma once
#include "optim/update_kernels.h"

namespace ingot {

/// f32 without compute copies.
const UpdateKernels& gpu_update_kernels();

}  // namespace ingot
