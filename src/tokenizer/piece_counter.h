// Counts distinct byte strings. Short ones, which are most of a text, lie in the hash table itself.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/piece_hash.h"

namespace ingot {

class PieceCounter {
 public:
  void add(std::string_view piece, int64_t count = 1) {
    if (piece.size() <= ShortPiece::kMaxBytes) return add_short(ShortPiece(piece), count);
    if ((entries_.size() + 1) * 2 > slots_.size()) grow_long();
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
    for (const Short& s : shorts_)
      if (s.count > 0) {
        char bytes[ShortPiece::kMaxBytes + 1];
        body(s.piece.copy_to(bytes), s.count);
      }
    for (const Entry& e : entries_) body(text(e), e.count);
  }
  size_t size() const { return short_count_ + entries_.size(); }

 private:
  struct Short {
    ShortPiece piece;
    int64_t count = 0;  // 0: free
  };
  struct Entry {
    uint64_t hash;
    size_t offset, size;
    int64_t count;
  };

  void add_short(const ShortPiece& piece, int64_t count) {
    if ((short_count_ + 1) * 2 > shorts_.size()) grow_short();
    Short& s = shorts_[place_of(piece)];
    short_count_ += s.count == 0 ? 1 : 0;
    s.piece = piece;
    s.count += count;
  }
  size_t place_of(const ShortPiece& piece) const {
    const size_t mask = shorts_.size() - 1;
    size_t place = piece.hash() & mask;
    while (shorts_[place].count > 0 && shorts_[place].piece != piece) place = (place + 1) & mask;
    return place;
  }
  void grow_short() {
    const std::vector<Short> old =
        std::exchange(shorts_, std::vector<Short>(std::bit_ceil(short_count_ * 4 + 1024)));
    for (const Short& s : old)
      if (s.count > 0) shorts_[place_of(s.piece)] = s;
  }
  std::string_view text(const Entry& e) const { return std::string_view(bytes_).substr(e.offset, e.size); }
  void grow_long() {
    slots_.assign(std::bit_ceil((entries_.size() + 1) * 4 + 1024), 0);
    const size_t mask = slots_.size() - 1;
    for (size_t i = 0; i < entries_.size(); ++i) {
      size_t slot = entries_[i].hash & mask;
      while (slots_[slot] != 0) slot = (slot + 1) & mask;
      slots_[slot] = static_cast<uint32_t>(i + 1);
    }
  }

  std::vector<Short> shorts_;
  size_t short_count_ = 0;
  // The others: a table of indices plus one, 0 where free, into entries whose bytes lie one after another.
  std::vector<uint32_t> slots_;
  std::vector<Entry> entries_;
  std::string bytes_;
};

}  // namespace ingot
