// Values of any storage for the optimizers' kernels: blocks of them as floats, and back with rounding.
// Included only by isa_*.cpp files: everything lives in an anonymous namespace, so each instruction set keeps
// its own code.
#pragma once
#include <cstdint>

#include "optim/kernel_parts.h"
#include "optim/kernels.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int64_t kStoredBlock = 1024;

/// Four random words for each of 16 consecutive Philox 4x32-10 counters from `counter` on: out[4 l + word].
/// The numbers of base/philox.h, written so that lanes vectorise.
inline void philox_words(uint32_t (&out)[4 * kSumLanes], uint64_t counter, const StoredPart& m) {
  uint32_t c0[kSumLanes], c1[kSumLanes], c2[kSumLanes], c3[kSumLanes];
  for (int64_t l = 0; l < kSumLanes; ++l) {
    const uint64_t c = counter + static_cast<uint64_t>(l);
    c0[l] = static_cast<uint32_t>(c);
    c1[l] = static_cast<uint32_t>(c >> 32);
    c2[l] = m.stream_low;
    c3[l] = m.stream_high;
  }
  uint32_t k0 = m.key0, k1 = m.key1;
  for (int round = 0; round < 10; ++round) {
    for (int64_t l = 0; l < kSumLanes; ++l) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0[l], p1 = uint64_t{0xCD9E8D57u} * c2[l];
      c0[l] = static_cast<uint32_t>(p1 >> 32) ^ c1[l] ^ k0;
      c1[l] = static_cast<uint32_t>(p1);
      c2[l] = static_cast<uint32_t>(p0 >> 32) ^ c3[l] ^ k1;
      c3[l] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int64_t l = 0; l < kSumLanes; ++l) {
    out[4 * l] = c0[l];
    out[4 * l + 1] = c1[l];
    out[4 * l + 2] = c2[l];
    out[4 * l + 3] = c3[l];
  }
}

/// x with 16 random bits added below bf16's mantissa, cut: the nearer neighbour is the likelier. Infinities
/// and NaN as to_bf16.
inline bf16 to_bf16_stochastic(float x, uint32_t random16) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7F800000u) == 0x7F800000u) return to_bf16(x);
  return {static_cast<uint16_t>((u + random16) >> 16)};
}

/// Elements [at, at + count) of the chunk as floats.
inline void load_stored(float* to, const StoredPart& m, int64_t at, int64_t count) {
  const bf16* from = static_cast<const bf16*>(m.data) + at;
  for (int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

/// Element i of the tensor takes half i % 2 of random word i / 2.
inline void store_stored(const StoredPart& m, int64_t at, int64_t count, const float* from) {
  bf16* to = static_cast<bf16*>(m.data) + at;
  if (!m.stochastic) {
    for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
    return;
  }
  constexpr int64_t kGroup = 8 * kSumLanes;  // elements of one philox_words
  const int64_t first = m.first + at;
  for (int64_t group = first / kGroup * kGroup; group < first + count; group += kGroup) {
    uint32_t words[4 * kSumLanes];
    philox_words(words, static_cast<uint64_t>(group / 8), m);
    const int64_t begin = group > first ? group : first;
    const int64_t end = group + kGroup < first + count ? group + kGroup : first + count;
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t word = words[(i - group) / 2];
      to[i - first] = to_bf16_stochastic(from[i - first], i % 2 == 0 ? word & 0xFFFFu : word >> 16);
    }
  }
}

/// A block of values as floats: in place where they are stored so, else a copy that close() writes back.
class StoredBlock {
 public:
  float* open(const StoredPart& m, int64_t at, int64_t count) {
    if (!m.data) return nullptr;
    if (!m.is_bf16) return static_cast<float*>(m.data) + at;
    load_stored(values_, m, at, count);
    return values_;
  }
  void close(const StoredPart& m, int64_t at, int64_t count) {
    if (m.data && m.is_bf16) store_stored(m, at, count, values_);
  }

 private:
  float values_[kStoredBlock];
};

}  // namespace
}  // namespace ingot::INGOT_ISA
