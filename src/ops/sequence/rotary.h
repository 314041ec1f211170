// Rotary position embedding: which frequency each pair of channels turns with, and cos and sin of position *
// frequency, for qk_prepare, cca and mla.
//
// Frequencies of a rule, pair i of P = dims / 2, plain f_i = theta^(-i / P):
//   plain           f_i                                                                     (Su et al. 2021)
//   linear          f_i / factor                                                (position interpolation)
//   llama3          f_i where the wavelength 2 pi / f_i is below original_context / high, f_i / factor where
//                   it is above original_context / low, between them the mean weighted by
//                   (original_context f_i / 2 pi - low) / (high - low)                      (Llama 3.1)
//   yarn            f_i for pairs that turn more than `high` times in original_context tokens, f_i / factor
//                   for those that turn less than `low` times, a linear ramp over the pair's number between
//                   (its ends rounded outwards); cos and sin are multiplied by `magnitude` (Peng et al. 2023)
//   half_truncated  -theta^(-i / (P / 2 - 1)) for the first half of the pairs, whose angles run the other
//                   way; 0 for the rest, which stay unchanged                               (modded-nanogpt)
//
// Accuracy: frequencies, products and reductions are in double, so an angle at position 10^6 is right to
// 2e-10 and the result is the float nearest to it but for rare ties. The functions
// are ours and use no instruction that differs between machines, so the bits are the same everywhere. How:
// position = 1024 c + f, and two tables of cos and sin in double (one per c, one per f) combine by the
// addition theorem: 1 MB per 32 pairs covers every position. Plain header: included by kernels of every
// instruction set. Thread-safe.
#pragma once
#include <cstdint>

#include "base/enum.h"
#include "device/gpu/anywhere.h"

namespace ingot {

enum class RotaryKind : uint8_t { plain, linear, llama3, yarn, half_truncated };
constexpr auto enum_names(RotaryKind) {
  return names_in_order<RotaryKind>("plain", "linear", "llama3", "yarn", "half_truncated");
}

/// How a layer rotates its queries and keys. Plain data: part of op attributes and the key of tables.
struct RotaryRule {
  double theta = 10000;
  int64_t dims = 0;  ///< rotated channels of a head: even; 0: no rotation; a multiple of 4 for half_truncated
  RotaryKind kind = RotaryKind::plain;
  bool interleaved = false;     ///< pair i is (2 i, 2 i + 1) (DeepSeek, GPT-J), not (i, i + dims / 2) (NeoX)
  double factor = 1;            ///< linear, llama3, yarn
  double low = 1, high = 4;     ///< llama3, yarn: turns within original_context
  double original_context = 0;  ///< llama3, yarn: tokens
  double magnitude = 1;         ///< of the rotated vectors
};

/// Writes the frequencies of the rule's dims / 2 pairs, in radians per position.
void rotary_frequencies(const RotaryRule& rule, double* frequencies);

struct RotaryTable {
  static constexpr int64_t kSteps = 1024;
  static constexpr int64_t kMaxPositions = kSteps * kSteps;
  int64_t pairs = 0;         ///< dims / 2
  bool interleaved = false;  ///< of the rule
  const double* coarse =
      nullptr;  ///< [kSteps][2][pairs]: cos, then sin, of 1024 c * frequency, times magnitude
  const double* fine = nullptr;  ///< [kSteps][2][pairs]: of f * frequency
};

/// The table of a rule; made at first use and kept for the life of the process.
const RotaryTable& rotary_table(const RotaryRule& rule);

/// Error unless every position lies in [0, RotaryTable::kMaxPositions).
void check_positions(const int32_t* positions, int64_t count);

/// cos and sin of a position and a pair; rounded once where Real is float.
template <class Real>
INGOT_ANYWHERE void rotary_angle(const RotaryTable& table, int32_t position, int64_t pair, Real& cosine,
                                 Real& sine) {
  const double* a = table.coarse + position / RotaryTable::kSteps * 2 * table.pairs + pair;
  const double* b = table.fine + position % RotaryTable::kSteps * 2 * table.pairs + pair;
  const double as = a[table.pairs], bs = b[table.pairs];
  cosine = static_cast<Real>(*a * *b - as * bs);
  sine = static_cast<Real>(as * *b + *a * bs);
}
/// cos and sin, [pairs] each, of one position.
template <class Real>
inline __attribute__((always_inline)) void rotary_row(const RotaryTable& table, int32_t position,
                                                      Real* cosine, Real* sine) {
  for (int64_t i = 0; i < table.pairs; ++i) rotary_angle(table, position, i, cosine[i], sine[i]);
}

}  // namespace ingot
