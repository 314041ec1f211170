// A 64-bit digest of memory that arrives piece by piece: to see that two processes hold the same bits, or
// that memory is still what it was. It detects damage, not malice. The pieces may come in any order, and any
// number of threads may work on one.
#pragma once
#include <atomic>
#include <cstdint>

namespace ingot {

class Digest {
 public:
  /// Adds a piece. `key` names it: the same bytes under another key count differently.
  void add(const void* data, int64_t bytes, uint64_t key);
  void clear() { sum_ = 0; }
  uint64_t value() const { return sum_; }

 private:
  std::atomic<uint64_t> sum_ = 0;
};

}  // namespace ingot
