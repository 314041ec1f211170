// See launcher.h.
#include "device/gpu/launcher.h"

#include <utility>

namespace ingot {
namespace {

thread_local GpuLauncher* own_launcher = nullptr;

}  // namespace

GpuLauncher* gpu_launcher() {
  return own_launcher;
}

bool launches_compiled() {
  return own_launcher != nullptr && own_launcher->takes_compiled();
}

LaunchOn::LaunchOn(GpuLauncher* launcher) : before_(std::exchange(own_launcher, launcher)) {}
LaunchOn::~LaunchOn() {
  own_launcher = before_;
}

}  // namespace ingot
