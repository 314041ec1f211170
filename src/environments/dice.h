// Draws in order from a stream of random numbers: what a generator of problems reads as dice. A value with a
// position; one thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace ingot::environments {

class Dice {
 public:
  explicit Dice(const Random& random) : random_(random) {}
  /// In [0, n), n > 0.
  int64_t below(int64_t n) { return static_cast<int64_t>(random_.below(next_++, static_cast<uint64_t>(n))); }
  /// In [least, most].
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  /// True once in n draws.
  bool once_in(int64_t n) { return below(n) == 0; }
  template <class List>
  const auto& pick(const List& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(std::size(list))))];
  }
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (size_t i = list.size(); i > 1; --i)
      std::swap(list[i - 1], list[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
  }

 private:
  Random random_;
  uint64_t next_ = 0;
};

}  // namespace ingot::environments
