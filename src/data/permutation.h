// A shuffle that is never stored: a keyed bijection of [0, n), computed per index in constant memory. The
// loader's cost therefore depends neither on the planned number of steps nor on the size of the data.
#pragma once
#include <cstdint>

namespace ingot::data {

/// Feistel network over a rectangle rows x columns >= n (rows = ceil(sqrt(n)), so at most rows - 1 cells lie
/// outside) with Philox 4x32-10 as round function; cells outside [0, n) are walked on until one lies inside.
/// Black & Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002. Integer arithmetic only: the same
/// order on every machine.
class Permutation {
 public:
  /// 1 <= n <= 2^62. `seed` and `stream` key the order; streams are independent (a source, an epoch).
  Permutation(int64_t n, uint64_t seed, uint64_t stream);
  int64_t size() const { return n_; }
  /// The image of index, 0 <= index < size(). About one microsecond. Thread-safe.
  int64_t operator()(int64_t index) const;

 private:
  uint64_t scramble(uint64_t cell) const;
  int64_t n_;
  uint64_t rows_;
  uint64_t columns_;
  uint32_t key0_;
  uint32_t key1_;
  uint64_t stream_;
};

}  // namespace ingot::data
