// See digest.h. A sum over blocks of their hashes, so the order in which blocks are hashed does not count.
#include "base/digest.h"

#include <xxhash.h>

#include <algorithm>

#include "base/parallel.h"

namespace ingot {
namespace {

constexpr int64_t kBlock = int64_t{1} << 18;  // bytes

/// A seed for a block: neighbouring keys and blocks have seeds that are far from each other.
uint64_t seed_of(uint64_t key, int64_t block) {
  const uint64_t name[2] = {key, static_cast<uint64_t>(block)};
  return XXH3_64bits(name, sizeof name);
}

}  // namespace

void Digest::add(const void* data, int64_t bytes, uint64_t key) {
  const auto* begin = static_cast<const char*>(data);
  parallel_for((bytes + kBlock - 1) / kBlock, 1, [&](int64_t first, int64_t last) {
    uint64_t sum = 0;
    for (int64_t b = first; b < last; ++b) {
      const int64_t at = b * kBlock, count = std::min(kBlock, bytes - at);
      sum += XXH3_64bits_withSeed(begin + at, static_cast<size_t>(count), seed_of(key, b));
    }
    sum_ += sum;
  });
}

}  // namespace ingot
