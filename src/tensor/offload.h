// Where saved activations wait outside memory. The tape writes a buffer here when forward does not need it
// any more, and reads it back shortly before backward does; both run beside the computation.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"

namespace ingot {

/// One thread calls; copying may use others.
class OffloadStore {
 public:
  /// Names the copy of one buffer.
  using Handle = int64_t;
  virtual ~OffloadStore() = default;
  /// Starts to copy `bytes` from `data`, which must not change until wait() or forget() of the handle
  /// returns.
  virtual Handle write(const void* data, int64_t bytes) = 0;
  /// Starts to copy the handle's bytes to `data`. The write must have been waited for.
  virtual void read(Handle handle, void* data) = 0;
  /// Returns when the handle's last write or read is done. Error where the medium failed, e.g. no space.
  virtual void wait(Handle handle) = 0;
  /// Waits for what was started for the handle, and frees its copy. Throws nothing.
  virtual void forget(Handle handle) = 0;
};

/// Keeps the copies in an unnamed file of `folder`, which is gone when the process is, and copies in one
/// thread. What it writes does not stay in the page cache. Error if the folder cannot hold a file.
std::unique_ptr<OffloadStore> file_offload_store(const std::string& folder);

/// Keeps copies of a device's memory in a store of host memory.
std::unique_ptr<OffloadStore> device_offload_store(Device& device, std::unique_ptr<OffloadStore> host);

}  // namespace ingot
