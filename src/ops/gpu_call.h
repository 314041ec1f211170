// Runs the launches of an op's kernel on a GPU: tensors of the call lie there, but for leaves and gradients
// of the host, which are copied there and back.
#pragma once
#include "device/cuda/cuda_device.h"
#include "tape/node.h"

namespace ingot {

/// Asks the device for them in the thread's compute stream. Gradients on the host are there when it returns.
void launch_on(CudaDevice& device, void (*launches)(const OpCall&), const OpCall& call, Direction direction);

}  // namespace ingot
