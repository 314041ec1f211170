// Hash of a short byte string, for tables that live inside one process: a multiply per eight bytes.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ingot {

inline uint64_t mix64(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t piece_hash(std::string_view piece) {
  constexpr uint64_t kA = 0x9E3779B97F4A7C15u;
  constexpr uint64_t kB = 0xD6E8FEB86659FD93u;
  const char* p = piece.data();
  size_t n = piece.size();
  uint64_t h = mix64(n ^ kA, kB);
  uint64_t word;
  for (; n >= 8; p += 8, n -= 8) {
    std::memcpy(&word, p, 8);
    h = mix64(h ^ word, kA);
  }
  if (n >= 4) {
    uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + n - 4, 4);
    word = (static_cast<uint64_t>(high) << 32) | low;
  } else if (n > 0) {
    const auto at = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])); };
    word = at(0) | (at(n / 2) << 8) | (at(n - 1) << 16);
  } else {
    word = 0;
  }
  return mix64(h ^ word, kB);
}

/// Up to 15 bytes and their number as two words: equal for equal pieces only.
struct ShortPiece {
  static constexpr size_t kMaxBytes = 15;
  uint64_t low = 0, high = 0;  // the bytes from the lowest up, the size in the highest

  ShortPiece() = default;
  explicit ShortPiece(std::string_view piece) {
    const char* p = piece.data();
    const size_t n = piece.size();
    if (n >= 8) {
      std::memcpy(&low, p, 8);
      std::memcpy(&high, p + n - 8, 8);
      high = n == 8 ? 0 : high >> (8 * (16 - n));
    } else if (n >= 4) {
      uint32_t first, last;
      std::memcpy(&first, p, 4);
      std::memcpy(&last, p + n - 4, 4);
      low = first | (static_cast<uint64_t>(last) << (8 * (n - 4)));
    } else if (n > 0) {
      const auto at = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])) << (8 * i); };
      low = at(0) | at(n / 2) | at(n - 1);
    }
    high |= static_cast<uint64_t>(n) << 56;
  }
  /// The piece again, in `buffer`.
  std::string_view copy_to(char (&buffer)[kMaxBytes + 1]) const {
    std::memcpy(buffer, &low, 8);
    std::memcpy(buffer + 8, &high, 8);
    return {buffer, high >> 56};
  }
  bool operator==(const ShortPiece&) const = default;
  uint64_t hash() const { return mix64(low ^ 0x9E3779B97F4A7C15u, high ^ 0xD6E8FEB86659FD93u); }
};

}  // namespace ingot
