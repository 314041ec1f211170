// Counts distinct byte strings: a hash table whose keys lie one after another in one string.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/piece_hash.h"

namespace ingot {

class PieceCounter {
 public:
  void add(std::string_view piece, int64_t count = 1) {
    if ((entries_.size() + 1) * 2 > slots_.size()) grow();
    const uint64_t hash = piece_hash(piece);
    const size_t mask = slots_.size() - 1;
    for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
      if (slots_[slot] == 0) {
        entries_.push_back({hash, bytes_.size(), piece.size(), count});
        bytes_ += piece;
        slots_[slot] = static_cast<uint32_t>(entries_.size());
        return;
      }
      Entry& e = entries_[slots_[slot] - 1];
      if (e.hash == hash && text(e) == piece) {
        e.count += count;
        return;
      }
    }
  }

  template <class Body>
  void for_each(Body&& body) const {
    for (const Entry& e : entries_) body(text(e), e.count);
  }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t hash;
    size_t offset, size;
    int64_t count;
  };
  std::string_view text(const Entry& e) const { return std::string_view(bytes_).substr(e.offset, e.size); }
  void grow() {
    slots_.assign(std::bit_ceil((entries_.size() + 1) * 4 + 1024), 0);
    const size_t mask = slots_.size() - 1;
    for (size_t i = 0; i < entries_.size(); ++i) {
      size_t slot = entries_[i].hash & mask;
      while (slots_[slot] != 0) slot = (slot + 1) & mask;
      slots_[slot] = static_cast<uint32_t>(i + 1);
    }
  }

  std::vector<uint32_t> slots_;  // index into entries_ plus one; 0: free
  std::vector<Entry> entries_;
  std::string bytes_;
};

}  // namespace ingot
