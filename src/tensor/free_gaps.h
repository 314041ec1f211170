// What is free between the buffers of a slab. Internal to tensor/.
#pragma once
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace ingot {

/// The slab ends with its last buffer. Not thread-safe.
class FreeGaps {
 public:
  /// The offset of `bytes` in the smallest gap that holds them (the first of several), else at the end.
  int64_t take(int64_t bytes) {
    if (bytes == 0) return 0;
    const auto best = by_size_.lower_bound({bytes, 0});
    if (best == by_size_.end()) return std::exchange(end_, end_ + bytes);
    const auto [size, offset] = *best;
    remove(by_offset_.find(offset));
    if (size > bytes) add(offset + bytes, size - bytes);
    return offset;
  }
  /// Whether take() would leave the slab's end at or below `limit`.
  bool fits(int64_t bytes, int64_t limit) const {
    return by_size_.lower_bound({bytes, 0}) != by_size_.end() || end_ + bytes <= limit;
  }
  void give_back(int64_t offset, int64_t bytes) {
    if (bytes == 0) return;
    int64_t begin = offset, end = offset + bytes;
    const auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.begin())
      if (const auto before = std::prev(after); before->first + before->second == begin) {
        begin = before->first;
        remove(before);
      }
    if (const auto next = by_offset_.find(end); next != by_offset_.end()) {
      end += next->second;
      remove(next);
    }
    if (end == end_)
      end_ = begin;
    else
      add(begin, end - begin);
  }

 private:
  void add(int64_t offset, int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void remove(std::map<int64_t, int64_t>::iterator gap) {
    by_size_.erase({gap->second, gap->first});
    by_offset_.erase(gap);
  }
  std::map<int64_t, int64_t> by_offset_;           // offset, size
  std::set<std::pair<int64_t, int64_t>> by_size_;  // size, offset
  int64_t end_ = 0;
};

}  // namespace ingot
