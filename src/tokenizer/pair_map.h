// A map from two adjacent token ids to a small value: open addressing, so one look-up is about one cache
// line. Nothing is ever removed.
#pragma once
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "tokenizer/piece_hash.h"

namespace ingot {

/// left << 32 | right: ordered like the two ids.
inline uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

template <class Value>
class PairMap {
 public:
  explicit PairMap(size_t expected = 0) : slots_(std::bit_ceil(expected * 2 + 64)) {}

  /// nullptr where the pair is unknown.
  const Value* find(uint64_t pair) const {
    const Slot& slot = slots_[place_of(pair)];
    return slot.pair == pair ? &slot.value : nullptr;
  }
  /// A new pair gets Value{}. The reference holds until the next new pair.
  Value& operator[](uint64_t pair) {
    size_t place = place_of(pair);
    if (slots_[place].pair != pair) {
      if (++size_ * 2 > slots_.size()) {
        grow();
        place = place_of(pair);
      }
      slots_[place].pair = pair;
    }
    return slots_[place].value;
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;  // no two ids
  struct Slot {
    uint64_t pair = kFree;
    Value value{};
  };

  /// Where the pair is, or would be put.
  size_t place_of(uint64_t pair) const {
    const size_t mask = slots_.size() - 1;
    size_t place = mix64(pair, 0x9E3779B97F4A7C15u) & mask;
    while (slots_[place].pair != pair && slots_[place].pair != kFree) place = (place + 1) & mask;
    return place;
  }
  void grow() {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
    for (const Slot& slot : old)
      if (slot.pair != kFree) slots_[place_of(slot.pair)] = slot;
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace ingot
