// See packing.h.
#include "data/packing.h"

#include <bit>
#include <utility>

#include "base/error.h"

namespace ingot::data {
namespace {

constexpr int64_t kNone = -1;

/// The set of free sizes 1 .. capacity that some row has, as a bitmap with a summary bitmap per 64 words and
/// so on: "smallest member >= x" takes one step per level.
class SpaceSet {
 public:
  explicit SpaceSet(int64_t capacity) {
    int64_t bits = capacity + 1;
    do {
      bits = (bits + 63) / 64;
      levels_.emplace_back(static_cast<size_t>(bits));
    } while (bits > 1);
  }
  void insert(int64_t space) {
    for (auto& level : levels_) {
      level[static_cast<size_t>(space / 64)] |= uint64_t{1} << (space % 64);
      space /= 64;
    }
  }
  void erase(int64_t space) {
    for (auto& level : levels_) {
      uint64_t& word = level[static_cast<size_t>(space / 64)];
      word &= ~(uint64_t{1} << (space % 64));
      if (word != 0) return;
      space /= 64;
    }
  }
  /// The smallest member that is at least `space`, or kNone.
  int64_t at_least(int64_t space) const {
    for (size_t level = 0; level < levels_.size(); ++level) {
      const auto word = static_cast<size_t>(space / 64);
      if (word >= levels_[level].size()) return kNone;
      const uint64_t found = levels_[level][word] >> (space % 64) << (space % 64);
      if (found != 0) return descend(level, static_cast<int64_t>(word) * 64 + std::countr_zero(found));
      space = space / 64 + 1;  // all further members lie in later words
    }
    return kNone;
  }

 private:
  int64_t descend(size_t level, int64_t place) const {
    while (level > 0) place = place * 64 + std::countr_zero(levels_[--level][static_cast<size_t>(place)]);
    return place;
  }
  std::vector<std::vector<uint64_t>> levels_;
};

/// Examples of length 1 .. capacity from the longest to the shortest, equal ones in order: a counting sort.
std::vector<int64_t> by_decreasing_length(std::span<const int64_t> lengths, int64_t capacity) {
  std::vector<int64_t> place(static_cast<size_t>(capacity) + 1);
  const auto counts = [&](int64_t length) { return length >= 1 && length <= capacity; };
  for (const int64_t length : lengths)
    if (counts(length)) ++place[static_cast<size_t>(length)];
  int64_t longer = 0;
  for (int64_t length = capacity; length >= 1; --length)
    longer += std::exchange(place[static_cast<size_t>(length)], longer);
  std::vector<int64_t> order(static_cast<size_t>(longer));
  for (size_t i = 0; i < lengths.size(); ++i)
    if (counts(lengths[i]))
      order[static_cast<size_t>(place[static_cast<size_t>(lengths[i])]++)] = static_cast<int64_t>(i);
  return order;
}

}  // namespace

PackedRows pack_best_fit(std::span<const int64_t> lengths, int64_t capacity, bool drop_too_long) {
  if (capacity < 1) fail("the capacity of a packed row is {}, expected at least 1", capacity);
  PackedRows packed;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] <= capacity) continue;
    if (!drop_too_long)
      throw Error(fmt::format("example {} has {} tokens, more than the {} of a row", i, lengths[i], capacity),
                  "raise the sequence length, or allow examples that are too long to be dropped");
    ++packed.dropped;
  }
  const std::vector<int64_t> order = by_decreasing_length(lengths, capacity);

  SpaceSet spaces(capacity);
  std::vector<int64_t> newest(static_cast<size_t>(capacity) + 1,
                              kNone);  // the latest row with this much free space
  std::vector<int64_t> older;          // per row: the previous one with equal free space
  std::vector<int64_t> row_of(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    const int64_t length = lengths[static_cast<size_t>(order[k])];
    int64_t space = spaces.at_least(length);
    int64_t row;
    if (space == kNone) {
      space = capacity;
      row = static_cast<int64_t>(older.size());
      older.push_back(kNone);
    } else {
      int64_t& top = newest[static_cast<size_t>(space)];
      row = top;
      top = older[static_cast<size_t>(row)];
      if (top == kNone) spaces.erase(space);
    }
    row_of[k] = row;
    const int64_t left = space - length;
    if (left == 0) continue;
    int64_t& top = newest[static_cast<size_t>(left)];
    if (top == kNone) spaces.insert(left);
    older[static_cast<size_t>(row)] = top;
    top = row;
  }

  // Gather the rows; within a row the order of packing (longest first) stays.
  packed.begins.assign(older.size() + 1, 0);
  for (const int64_t row : row_of) ++packed.begins[static_cast<size_t>(row) + 1];
  for (size_t r = 1; r < packed.begins.size(); ++r) packed.begins[r] += packed.begins[r - 1];
  std::vector<int64_t> next(packed.begins.begin(), packed.begins.end() - 1);
  packed.examples.resize(order.size());
  for (size_t k = 0; k < order.size(); ++k)
    packed.examples[static_cast<size_t>(next[static_cast<size_t>(row_of[k])]++)] = order[k];
  return packed;
}

}  // namespace ingot::data
