// See launch_through.h.
#include "device/gpu/launch_through.h"

#include <utility>

#include "device/gpu/launcher.h"

namespace ingot {

void launch_through(Device& device, HostKernel&& kernel) {
  auto* const launcher = dynamic_cast<GpuLauncher*>(&device);
  if (launcher == nullptr) return device.launch(std::move(kernel));
  const LaunchOn on(launcher);
  std::vector<void*> at;
  for (const KernelRange& range : kernel.ranges) at.push_back(range.memory);
  kernel.body(at);
}

}  // namespace ingot
