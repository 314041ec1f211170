// See update_kernels.h: which kernels a device has.
#include "optim/update_kernels.h"

#include "base/error.h"
#include "device/gpu/emulator.h"
#include "ops/gpu_proof.h"
#include "optim/gpu_step.h"
#include "tape/op.h"

namespace ingot {
namespace {

/// Best first. The simulated device takes those of GPUs, emulated, where it is told to.
std::vector<const UpdateKernels*> update_kernels_of(DeviceKind device) {
  const bool runs = device == DeviceKind::cuda ? unproven_kernels_run()  // no proof of them is kept
                                               : device == DeviceKind::sim && emulation().on;
  return runs ? std::vector{&gpu_update_kernels()} : std::vector<const UpdateKernels*>();
}

}  // namespace

bool has_update_kernels(DeviceKind device) {
  return !update_kernels_of(device).empty();
}

const UpdateKernels* select_update_kernels(DeviceKind device, const std::string& part,
                                           const std::function<const char*(const UpdateKernels&)>& refuse) {
  if (kernel_policy() == KernelPolicy::reference) return nullptr;
  std::string reasons;
  for (const UpdateKernels* kernels : update_kernels_of(device)) {
    const char* const reason = refuse(*kernels);
    if (reason == nullptr) return kernels;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", kernels->name, reason);
  }
  if (kernel_policy() != KernelPolicy::strict || device_of(device).owns_host_kernels()) return nullptr;
  throw Error(fmt::format("{} has no kernels on device '{}'{}", part, name_of(device),
                          reasons.empty() ? "" : fmt::format(" ({})", reasons)),
              "--kernels=any runs it as host code there");
}

const UpdateKernels* select_update_kernels(DeviceKind device, const std::string& part,
                                           std::span<const ParamView> params) {
  return select_update_kernels(device, part, [&](const UpdateKernels& kernels) {
    const char* refused = nullptr;
    for (size_t i = 0; i < params.size() && refused == nullptr; ++i) refused = kernels.refuse(params[i], {});
    return refused;
  });
}

}  // namespace ingot
