// Runs an op's CPU kernel as a kernel of a device that takes host code (device/host_kernel.h), on the
// device's memory: nothing is copied, and it may run later.
#pragma once
#include "tape/node.h"

namespace ingot {

/// Asks the device for it. The call's tensors lie there; those on the host are leaves, whose values of now
/// the kernel reads, or gradients, which have been written when this returns. `scratch_bytes`: of
/// call.scratch.
void launch_call(Device& device, const Kernel& kernel, const Node& node, const OpCall& call,
                 Direction direction, int64_t scratch_bytes);

}  // namespace ingot
