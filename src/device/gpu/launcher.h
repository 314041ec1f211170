// Who runs the kernels that a thread's host code launches (rt.h): nobody but the emulator, or a device, which
// queues them. Plain.
#pragma once
#include <cstddef>
#include <cstdint>

#include "device/gpu/launch.h"
#include "device/gpu/tensor_map.h"

namespace ingot {

/// One launch, in the form in which this build has the kernel: compiled for the device, or as host code.
struct GpuLaunch {
  const char* name;
  GpuGrid grid;
  /// The host's address of a kernel that was compiled for the device, and those of its arguments.
  const void* compiled = nullptr;
  void** parameters = nullptr;
  /// The same as host code: emulator::run(name, grid, body, arguments); they are plain bytes.
  void (*body)(const void*) = nullptr;
  const void* arguments = nullptr;
  size_t argument_bytes = 0;
};

class GpuLauncher {
 public:
  virtual ~GpuLauncher() = default;
  /// Whether it takes kernels that were compiled for the device; else those that are host code.
  virtual bool takes_compiled() const = 0;
  /// Asks for the kernel in the thread's compute stream; its arguments may change once this returns.
  virtual void launch_kernel(const GpuLaunch& launch) = 0;
  virtual int compute_capability() const = 0;  ///< 10 * major + minor: 90 is Hopper
  virtual int multiprocessors() const = 0;
  /// What kernels read of matrices in the device's memory. Error where it does not take them.
  virtual TensorMap tensor_map(const TiledMatrices& matrices) = 0;
  /// Where the device has these bytes of the host, which never change, and stay.
  virtual const void* constant(const void* host, int64_t bytes) = 0;
};

/// Of the calling thread; nullptr: the emulator runs kernels at once, on the host's memory.
GpuLauncher* gpu_launcher();

/// A thread's launches go there while this lives.
class LaunchOn {
 public:
  explicit LaunchOn(GpuLauncher* launcher);
  ~LaunchOn();
  LaunchOn(const LaunchOn&) = delete;
  LaunchOn& operator=(const LaunchOn&) = delete;

 private:
  GpuLauncher* const before_;
};

/// A table of the host, made once, at an address for kernels.
template <class T>
const T* gpu_constant(const T* host, int64_t count) {
  GpuLauncher* const launcher = gpu_launcher();
  return launcher == nullptr
             ? host
             : static_cast<const T*>(launcher->constant(host, count * static_cast<int64_t>(sizeof(T))));
}

}  // namespace ingot
