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

}  // namespace ingot
