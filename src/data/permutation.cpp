// See permutation.h.
#include "data/permutation.h"

#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "base/round.h"

namespace ingot::data {
namespace {

constexpr uint32_t kRounds = 8;  // even: rows and columns are each mixed four times

}  // namespace

Permutation::Permutation(int64_t n, uint64_t seed, uint64_t stream)
    : n_(n),
      key0_(static_cast<uint32_t>(seed) ^
            0x50455231u),  // "PER1": apart from every Random stream of the same seed
      key1_(static_cast<uint32_t>(seed >> 32)),
      stream_(stream) {
  INGOT_CHECK(n >= 1 && n <= (int64_t{1} << 62), "n = {}", n);
  const auto count = static_cast<uint64_t>(n);
  rows_ = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (rows_ * rows_ < count)
    ++rows_;  // the square root of a large n is rounded: correct it to the exact ceiling
  while (rows_ > 1 && (rows_ - 1) * (rows_ - 1) >= count) --rows_;
  columns_ = ceil_div(count, rows_);
}

uint64_t Permutation::scramble(uint64_t cell) const {
  uint64_t row = cell / columns_;
  uint64_t column = cell % columns_;
  for (uint32_t round = 0; round < kRounds; ++round) {
    // The other half (at most 2^31), the stream and the round fill the counter exactly.
    const uint64_t half = round % 2 == 0 ? column : row;
    const Philox4 b = philox4x32({static_cast<uint32_t>(half), round, static_cast<uint32_t>(stream_),
                                  static_cast<uint32_t>(stream_ >> 32)},
                                 key0_, key1_);
    const uint64_t mix = uint64_t{b[1]} << 32 | b[0];
    if (round % 2 == 0) {
      row = (row + mix % rows_) % rows_;
    } else {
      column = (column + mix % columns_) % columns_;
    }
  }
  return row * columns_ + column;
}

int64_t Permutation::operator()(int64_t index) const {
  INGOT_CHECK(index >= 0 && index < n_, "index = {}, n = {}", index, n_);
  uint64_t cell = static_cast<uint64_t>(index);
  do {
    cell = scramble(cell);
  } while (cell >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(cell);
}

}  // namespace ingot::data
