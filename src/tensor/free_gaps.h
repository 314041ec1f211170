// What is free between the buffers of a slab. Internal to tensor/.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ingot {

/// The slab ends with its last buffer. Gaps are few and lie in arrays: looking at all of them is faster than
/// trees are. Not thread-safe.
class FreeGaps {
 public:
  /// The offset of `bytes` in the smallest gap that holds them (the first of several), else at the end.
  int64_t take(int64_t bytes) {
    if (bytes == 0) return 0;
    const size_t gap = smallest_of(bytes);
    if (gap == sizes_.size()) return std::exchange(end_, end_ + bytes);
    const int64_t offset = offsets_[gap];
    if (sizes_[gap] == bytes)
      remove(gap);
    else
      offsets_[gap] += bytes, sizes_[gap] -= bytes;
    return offset;
  }
  /// Whether take() would leave the slab's end at or below `limit`.
  bool fits(int64_t bytes, int64_t limit) const {
    return smallest_of(bytes) < sizes_.size() || end_ + bytes <= limit;
  }
  void give_back(int64_t offset, int64_t bytes) {
    if (bytes == 0) return;
    const auto after =
        static_cast<size_t>(std::lower_bound(offsets_.begin(), offsets_.end(), offset) - offsets_.begin());
    const bool joins_before = after > 0 && offsets_[after - 1] + sizes_[after - 1] == offset,
               joins_after = after < offsets_.size() && offset + bytes == offsets_[after];
    if (joins_before) {
      sizes_[after - 1] += bytes + (joins_after ? sizes_[after] : 0);
      if (joins_after) remove(after);
    } else if (joins_after) {
      offsets_[after] = offset, sizes_[after] += bytes;
    } else {
      offsets_.insert(offsets_.begin() + static_cast<std::ptrdiff_t>(after), offset);
      sizes_.insert(sizes_.begin() + static_cast<std::ptrdiff_t>(after), bytes);
    }
    if (offsets_.back() + sizes_.back() == end_) end_ = offsets_.back(), remove(offsets_.size() - 1);
  }

 private:
  /// The first of the smallest gaps of at least so many bytes; how many there are if there is none.
  size_t smallest_of(int64_t bytes) const {
    size_t best = sizes_.size();
    int64_t size = INT64_MAX;
    for (size_t i = 0; i < sizes_.size(); ++i)
      if (sizes_[i] >= bytes && sizes_[i] < size) best = i, size = sizes_[i];
    return best;
  }
  void remove(size_t gap) {
    offsets_.erase(offsets_.begin() + static_cast<std::ptrdiff_t>(gap));
    sizes_.erase(sizes_.begin() + static_cast<std::ptrdiff_t>(gap));
  }
  std::vector<int64_t> offsets_, sizes_;  // ascending offsets
  int64_t end_ = 0;
};

}  // namespace ingot
