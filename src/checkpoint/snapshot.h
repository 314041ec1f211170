// Memory for the copy of what a checkpoint holds, which is written while training continues.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ingot {

/// Not thread-safe.
class Snapshot {
 public:
  /// Has at least so many bytes, whose pages are touched: memory that is used for the first time costs ten
  /// times a copy. What it held is lost if it has to grow. Throws Error where there is no memory.
  void reserve(int64_t bytes);
  std::byte* data() { return memory_.get(); }

 private:
  struct FreeBytes {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], FreeBytes> memory_;
  int64_t bytes_ = 0;
};

}  // namespace ingot
