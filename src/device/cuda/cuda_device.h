// One NVIDIA GPU behind the driver's interface (driver.h): memory, streams, events, copies, graphs, and the
// launches of kernels (device/gpu/launcher.h) with memory for them (workspace.h). What it must be is stated
// by device/device.h, what it is worth by docs/gpu.md: tests have run it on a driver that is faked, and no
// GPU has been at hand.
#pragma once
#include <memory>

#include "device/cuda/driver.h"
#include "device/device.h"
#include "device/gpu/workspace.h"

namespace ingot {

class CudaDevice : public Device, public GpuLauncher, public GpuMemory {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }
  virtual const cuda_driver::Driver& driver() const = 0;
  /// The calling thread's compute stream, for a library that queues work there; the thread is bound to the
  /// device's context.
  virtual cuda_driver::Stream compute_stream() = 0;
  /// Of the GPU, in bytes.
  struct Memory {
    int64_t free, all;
  };
  virtual Memory memory() = 0;
  /// Memory of the host that copies reach without a copy of the driver's, until unpin(). What is uploaded
  /// from it must stay until an event recorded later is synchronized. Error: the driver refuses.
  virtual void pin(void* host, int64_t bytes) = 0;
  virtual void unpin(void* host) = 0;
};

/// Errors where this program has no kernels for the GPU's architecture, or it gives no context.
std::unique_ptr<CudaDevice> make_cuda_device(cuda_driver::Driver driver);

/// The process's, made at first use: of libcuda.so.1, or of what INGOT_CUDA_LIBRARY names. Errors as
/// make_cuda_device() and open_driver(), each time.
CudaDevice& cuda_device();

}  // namespace ingot
