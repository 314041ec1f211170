// See update_kernels.h: which kernels a device has.
#include "optim/update_kernels.h"

#include "device/gpu/emulator.h"
#include "optim/gpu_step.h"
#include "tape/op.h"

namespace ingot {
namespace {

/// Best first. The simulated device takes those of GPUs, emulated, where it is told to.
std::vector<const UpdateKernels*> update_kernels_of(DeviceKind device) {
  if (device == DeviceKind::sim && emulation().on) return {&gpu_update_kernels()};
  return {};
}

}  // namespace

const UpdateKernels* select_update_kernels(DeviceKind device,
                                           const std::function<const char*(const UpdateKernels&)>& refuse) {
  if (kernel_policy() == KernelPolicy::reference) return nullptr;
  for (const UpdateKernels* kernels : update_kernels_of(device))
    if (refuse(*kernels) == nullptr) return kernels;
  return nullptr;
}

}  // namespace ingot
