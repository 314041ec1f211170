// Angles of rotary position embedding: cos and sin of position * theta^(-2 i / rotary_dims), for qk_prepare
// and cca.
//
// Accuracy: frequencies, products and reductions are in double, so an angle at position 10^6 is right to
// 2e-10 and the result is the float nearest to it but for rare ties (spec zaya1 §1.5 step 6). The functions
// are ours and use no instruction that differs between machines, so the bits are the same everywhere. How:
// position = 1024 c + f, and two tables of cos and sin in double (one per c, one per f) combine by the
// addition theorem: 1 MB per 32 pairs covers every position. Plain header: included by kernels of every
// instruction set. Thread-safe.
#pragma once
#include <cstdint>

namespace ingot {

struct RotaryTable {
  static constexpr int64_t kSteps = 1024;
  static constexpr int64_t kMaxPositions = kSteps * kSteps;
  int64_t pairs = 0;               ///< rotary_dims / 2
  const double* coarse = nullptr;  ///< [kSteps][2][pairs]: cos, then sin, of 1024 c * frequency
  const double* fine = nullptr;    ///< [kSteps][2][pairs]: of f * frequency
};

/// The table of (theta, rotary_dims); made at first use and kept for the life of the process. rotary_dims is
/// even.
const RotaryTable& rotary_table(double theta, int64_t rotary_dims);

/// Error unless every position lies in [0, RotaryTable::kMaxPositions).
void check_positions(const int32_t* positions, int64_t count);

/// cos and sin, [pairs] each, of one position; rounded once where Real is float.
template <class Real>
inline __attribute__((always_inline)) void rotary_row(const RotaryTable& table, int32_t position,
                                                      Real* cosine, Real* sine) {
  const double* a = table.coarse + position / RotaryTable::kSteps * 2 * table.pairs;
  const double* b = table.fine + position % RotaryTable::kSteps * 2 * table.pairs;
  const double *as = a + table.pairs, *bs = b + table.pairs;
  for (int64_t i = 0; i < table.pairs; ++i) {
    cosine[i] = static_cast<Real>(a[i] * b[i] - as[i] * bs[i]);
    sine[i] = static_cast<Real>(as[i] * b[i] + a[i] * bs[i]);
  }
}

}  // namespace ingot
