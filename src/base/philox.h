// Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011). A number is a pure function of its
// key and counter (seed, purpose and position), so initialisation, data order and sampling do not depend on
// threads, ranks or resumption. Plain inline integer code gives the same bits on every machine.
#pragma once
#include <array>
#include <cstdint>

namespace ingot {

/// What a random stream is for. It is part of the key, so streams never overlap. The values are on disk:
/// never renumber them.
enum class RandomPurpose : uint32_t {
  init = 1,
  data_order = 2,
  mixture = 3,
  sampling = 4,
  test = 5,
  dropout = 6,
  rounding = 7,
  environment = 8
};

using Philox4 = std::array<uint32_t, 4>;

/// The raw block function: 10 rounds over a 128-bit counter with a 64-bit key.
inline Philox4 philox4x32(Philox4 counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// A stream of numbers addressed by index. `stream` separates sequences of one purpose (a hash of a tensor's
/// name, an epoch, a sample). Copyable value without state.
class Random {
 public:
  Random(uint64_t seed, RandomPurpose purpose, uint64_t stream = 0)
      : seed_(seed), stream_(stream), purpose_(purpose) {}

  /// 32 random bits number `index`.
  uint32_t bits(uint64_t index) const { return block(index / 4)[index % 4]; }
  /// 64 random bits number `index`.
  uint64_t bits64(uint64_t index) const {
    const Philox4 b = block(index / 2);
    return index % 2 == 0 ? (uint64_t{b[1]} << 32 | b[0]) : (uint64_t{b[3]} << 32 | b[2]);
  }
  /// Uniform in [0, 1), 24 bits.
  float uniform(uint64_t index) const { return static_cast<float>(bits(index) >> 8) * 0x1p-24f; }
  __extension__ using Wide = unsigned __int128;
  /// Uniform integer in [0, bound), bound > 0 (bias < 2^-32 for bound < 2^32).
  uint64_t below(uint64_t index, uint64_t bound) const {
    return static_cast<uint64_t>((static_cast<Wide>(bits64(index)) * bound) >> 64);
  }
  /// Standard normal number `index` (Box-Muller in double; a pure function of the index).
  double normal(uint64_t index) const;

 private:
  Philox4 block(uint64_t index) const {
    return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                       static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                      static_cast<uint32_t>(seed_) ^ (static_cast<uint32_t>(purpose_) * 0x85EBCA6Bu),
                      static_cast<uint32_t>(seed_ >> 32) + static_cast<uint32_t>(purpose_));
  }
  uint64_t seed_;
  uint64_t stream_;
  RandomPurpose purpose_;
};

}  // namespace ingot
