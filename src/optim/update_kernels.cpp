// See update_kernels.h: which kernels a device has.
#include "optim/update_kernels.h"

#include "base/error.h"
#include "device/gpu/emulator.h"
#include "ops/gpu_proof.h"
#include "ops/gpu_registry.h"
#include "optim/gpu_step.h"
#include "tape/op.h"

namespace ingot {
namespace {

/// Best first. The simulated device takes those of GPUs, emulated, where it is told to.
std::vector<const UpdateKernels*> update_kernels_of(DeviceKind device) {
  const bool has = device == DeviceKind::cuda || (device == DeviceKind::sim && emulation().on);
  return has ? std::vector{&gpu_update_kernels()} : std::vector<const UpdateKernels*>();
}

}  // namespace

bool has_update_kernels(DeviceKind device) {
  return !update_kernels_of(device).empty() &&
         (device != DeviceKind::cuda || refuse_unproven(kUpdateOnGpu) == nullptr);
}

const char* refuse_bf16_products(DeviceKind device) {
  if (device == DeviceKind::cuda) return refuse_unproven(kUpdateOnTensorCores);
  return emulation().on && !emulation().mma
             ? "tensor cores, for Newton-Schulz in bf16, are emulated where INGOT_EMULATE says mma"
             : nullptr;
}

const UpdateKernels* select_update_kernels(DeviceKind device, const std::string& part,
                                           const std::function<const char*(const UpdateKernels&)>& refuse) {
  if (kernel_policy() == KernelPolicy::reference) return nullptr;
  std::string reasons;
  for (const UpdateKernels* kernels : update_kernels_of(device)) {
    const char* reason = device == DeviceKind::cuda ? refuse_unproven(kUpdateOnGpu) : nullptr;
    if (reason == nullptr) reason = refuse(*kernels);
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
