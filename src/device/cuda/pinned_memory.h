// Memory of the host that is page-locked, to and from which a GPU copies while the host does other things. A
// copy of other memory goes through the driver, which may make the host wait until the GPU has come to it.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/driver.h"

namespace ingot {

/// Thread-safe. The caller has bound the GPU's context to its thread.
class PinnedMemory {
 public:
  /// Of a GPU of this name.
  PinnedMemory(const cuda_driver::Functions& call, std::string gpu) : call_(call), gpu_(std::move(gpu)) {}
  /// No copy uses its blocks any more.
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  /// A block of so many bytes, page-aligned, not initialised: one that was given back, or a new one, which is
  /// kept until this is destroyed. nullptr where the driver refuses to pin it, which is logged the first
  /// time; blocks of that size are then not asked for again.
  void* take(int64_t bytes);
  /// False, and does nothing, where take() has not given the block.
  bool give_back(void* block, int64_t bytes);
  /// What a block for so many bytes has: a power of two, so that copies of changing sizes find each other's.
  static int64_t block_bytes(int64_t bytes);

  /// Memory of the caller's.
  cuda_driver::Result pin(void* host, int64_t bytes);
  cuda_driver::Result unpin(void* host);
  /// Whether all these bytes are pinned, in a block or by pin().
  bool holds(const void* first, int64_t bytes) const;

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  void log_refusal(int64_t size, cuda_driver::Result why);

  const cuda_driver::Functions& call_;
  const std::string gpu_;
  mutable std::mutex mutex_;
  std::map<const void*, int64_t> pinned_;         ///< bytes by first address, of all
  std::map<void*, int64_t> blocks_;               ///< the same of those that were made here
  std::map<int64_t, std::vector<void*>> unused_;  ///< of these, by size
  int64_t refused_ = kNone;                       ///< the smallest block that the driver did not pin
};

}  // namespace ingot
