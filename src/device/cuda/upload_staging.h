// Uploads on their way to a GPU: the host's bytes are copied into pinned memory, from which the GPU reads
// them when its stream comes to it, and whose block is free again once the host knows that it has.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "device/cuda/pinned_memory.h"

namespace ingot {

/// Of compute streams, of which each thread has one. Thread-safe.
class UploadStaging {
 public:
  /// The largest upload that is staged: the inputs of a micro-batch of some 100,000 rows, a small matrix.
  static constexpr int64_t kLargest = int64_t{4} << 20;
  /// Most bytes of blocks that are on their way, of all threads together.
  static constexpr int64_t kMost = int64_t{64} << 20;

  /// How many uploads of a thread have been staged.
  struct Moment {
    std::thread::id thread;
    int64_t uploads = 0;
  };

  explicit UploadStaging(PinnedMemory& pinned) : pinned_(pinned) {}
  UploadStaging(const UploadStaging&) = delete;
  UploadStaging& operator=(const UploadStaging&) = delete;

  /// A copy of the bytes, which stays until a moment of the calling thread that is taken later has passed.
  /// nullptr where they are too many, too many are on their way, or no memory can be pinned.
  const void* stage(const void* from, int64_t bytes);
  /// All that the calling thread has staged.
  Moment now() const;
  /// The GPU has done what its stream was asked for until then.
  void passed(const Moment& moment);

 private:
  struct Block {
    int64_t upload;  ///< of its thread, from 1
    void* data;
    int64_t bytes;
  };
  struct OfThread {
    int64_t uploads = 0;
    std::deque<Block> on_their_way;  ///< in the order of the stream
  };

  PinnedMemory& pinned_;
  mutable std::mutex mutex_;
  std::map<std::thread::id, OfThread> threads_;
  int64_t bytes_ = 0;  ///< of blocks that are on their way
};

}  // namespace ingot
