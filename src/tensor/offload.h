// Where saved activations wait outside memory: the tier below an arena. The tape writes a buffer here when
// forward has no more use for it and reads it back shortly before backward asks; both run beside the
// computation.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace ingot {

class OffloadStore {
 public:
  using Handle = int64_t;
  virtual ~OffloadStore() = default;
  /// Starts to copy `bytes` from `data`, which stays as it is until wait() or forget() of the handle returns.
  virtual Handle write(const void* data, int64_t bytes) = 0;
  /// Starts to copy the handle's bytes to `data`; the write must have been waited for.
  virtual void read(Handle handle, void* data) = 0;
  /// Returns when the handle's last write or read is done. Error where the medium failed, e.g. no space.
  virtual void wait(Handle handle) = 0;
  /// Gives the handle's place back, after what was started for it has ended; nothing is thrown.
  virtual void forget(Handle handle) = 0;
};

/// A tier in an unnamed file of `folder` (it is gone when the process is), with one thread that copies. The
/// pages it writes do not stay in the page cache. Error if the folder cannot hold a file. One caller at a
/// time.
std::unique_ptr<OffloadStore> file_offload_store(const std::string& folder);

}  // namespace ingot
