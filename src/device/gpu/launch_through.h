// Launches of kernels of GPUs on any device that can have them run. Plain.
#pragma once
#include "device/device.h"
#include "device/host_kernel.h"

namespace ingot {

/// Has a device run `kernel`, whose body launches kernels of GPUs: at once where it queues them itself; where
/// it takes host code, as a kernel of it, whose launches are emulated.
void launch_through(Device& device, HostKernel&& kernel);

}  // namespace ingot
