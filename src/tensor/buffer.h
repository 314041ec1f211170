// Memory that lives longer than a step: weights, gradients, optimizer states.
#pragma once
#include <cstdint>

#include "device/device.h"

namespace ingot {

/// What is behind a buffer's addresses.
enum class Backing {
  memory,
  sparse,  ///< zeroed memory, added page by page at the first write; can be given back
  nothing  ///< address space only, for a dry run: of any size, on any machine; touching it is a crash
};

/// Owns zeroed memory, 64-byte aligned, rounded up to whole cache lines. Large buffers ask for huge pages.
/// Error: out of memory. Not thread-safe, but its memory may be used by many threads.
///
/// With a device the values are on the host or there, and move whole when the other side asks for them; both
/// addresses stay the same. While they are on the device, access to the host's addresses ends the program.
class Buffer {
 public:
  Buffer() = default;
  /// `device`: where the values may move, for Backing::memory; cpu: they stay. `what`: their category, a
  /// literal, for messages.
  explicit Buffer(int64_t bytes, Backing backing = Backing::memory, DeviceKind device = DeviceKind::cpu,
                  const char* what = "buffer");
  ~Buffer();
  Buffer(Buffer&& o) noexcept;
  Buffer& operator=(Buffer&& o) noexcept;
  /// On the host; the values come back if they are on the device.
  void* data() const {
    if (on_device_) bring_back();
    return data_;
  }
  /// On the device; the values go there if they are on the host.
  void* on_device() const;
  DeviceKind device() const { return device_; }
  int64_t bytes() const { return bytes_; }
  /// Gives back the memory of the whole pages within bytes [begin, end), whose contents are then undefined.
  /// Not for Backing::memory.
  void discard(int64_t begin, int64_t end);

 private:
  void bring_back() const;

  void* data_ = nullptr;
  mutable void* there_ = nullptr;  ///< on the device, from the first move on
  mutable bool on_device_ = false;
  DeviceKind device_ = DeviceKind::cpu;
  const char* what_ = "buffer";
  int64_t bytes_ = 0;
  Backing backing_ = Backing::memory;
};

}  // namespace ingot
