// Memory that lives longer than a step: weights, gradients, optimizer states.
#pragma once
#include <cstdint>

namespace ingot {

/// What is behind a buffer's addresses.
enum class Backing {
  memory,
  sparse,  ///< zeroed memory, added page by page at the first write; can be given back
  nothing  ///< address space only, for a dry run: of any size, on any machine; touching it is a crash
};

/// Owns zeroed memory, 64-byte aligned, rounded up to whole cache lines. Large buffers ask for huge pages.
/// Error: out of memory. Not thread-safe, but its memory may be used by many threads.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes, Backing backing = Backing::memory);
  ~Buffer();
  Buffer(Buffer&& o) noexcept;
  Buffer& operator=(Buffer&& o) noexcept;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  /// Gives back the memory of the whole pages within bytes [begin, end), whose contents are then undefined.
  /// Not for Backing::memory.
  void discard(int64_t begin, int64_t end);

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Backing backing_ = Backing::memory;
};

}  // namespace ingot
