// A device: where the buffers of a tape are, and how bytes reach them from the host. One of each kind in a
// process; ranks that are threads share it.
//   cpu   the machine's memory, which kernels and host code share
//   null  no memory: a dry run counts allocations and work (tensor/arena.h, CountingArena)
//   sim   memory that host code cannot touch, as a GPU's. It proves on any machine that host code does not
//         read what a device holds (sim/sim_device.h)
//   cuda, hip   not built yet
// docs/gpu.md says how far the way to a GPU is.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/enum.h"

namespace ingot {

enum class DeviceKind : uint8_t { cpu = 0, null = 1, cuda = 2, hip = 3, sim = 4 };
constexpr auto enum_names(DeviceKind) {
  return names_in_order<DeviceKind>("cpu", "null", "cuda", "hip", "sim");
}

/// What was allocated and copied since the process began; zeros for the cpu, whose memory is the host's.
struct DeviceCounters {
  std::atomic<int64_t> allocations = 0;
  std::atomic<int64_t> uploads = 0, uploaded_bytes = 0;
  std::atomic<int64_t> downloads = 0, downloaded_bytes = 0;
};

/// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  /// Memory of the device, 64-byte aligned, not initialised; nullptr for no bytes. Error: out of memory.
  virtual void* allocate(int64_t bytes) = 0;
  /// Frees memory of allocate() with the same size.
  virtual void release(void* memory, int64_t bytes) = 0;
  /// Copies from the host to the device. The host's bytes may change once it returns.
  virtual void upload(void* to, const void* from, int64_t bytes) = 0;
  /// Copies from the device to the host, after everything that was begun before. The bytes are there once it
  /// returns.
  virtual void download(void* to, const void* from, int64_t bytes) = 0;
  /// Says what a part of the device's memory holds from now on, for messages: output or input `slot` of op
  /// `owner`. Both are literals.
  virtual void name_memory(const void* /*memory*/, int64_t /*bytes*/, const char* /*owner*/,
                           const char* /*slot*/) {}
  const DeviceCounters& counters() const { return counters_; }

 protected:
  DeviceCounters counters_;
};

Device& cpu_device();
Device& null_device();
/// Error for a kind that this program was built without.
Device& device_of(DeviceKind kind);

/// The device that forward and backward passes of training run on, in the whole process; cpu by default, or
/// what INGOT_DEVICE names. Set it before anything runs. Errors as device_of(); for null, which trains
/// nothing.
void set_compute_device(DeviceKind kind);
DeviceKind compute_device();

}  // namespace ingot
