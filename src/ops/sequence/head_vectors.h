// For the kernels of qk_prepare and cca: the rotation of a head. Included only by isa_*.cpp; elementwise, so
// its bits do not depend on the vector length.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/reduce.h"
#include "ops/sequence/rotary.h"

namespace ingot::INGOT_ISA {

/// Widest head that kernels keep on their stack.
constexpr int64_t kMaxHeadWidth = 1024;

/// cos and sin of one row.
struct RowAngles {
  float cosine[kMaxHeadWidth / 2], sine[kMaxHeadWidth / 2];
};

/// Rotates the pairs (i, i + pairs) in place, by the angles or (inverse) by their negatives.
INGOT_INLINE void rotate_halves(float* x, const RowAngles& angles, int64_t pairs, bool inverse) {
  each_vector(pairs, [&](int64_t i, int n) {
    const Vec c = load_n(angles.cosine + i, n), s0 = load_n(angles.sine + i, n),
              s = inverse ? zero() - s0 : s0;
    const Vec a = load_n(x + i, n), b = load_n(x + pairs + i, n);
    store_n(x + i, fma(a, c, zero() - b * s), n);
    store_n(x + pairs + i, fma(b, c, a * s), n);
  });
}

/// Rotates a head in place; neighbouring pairs are parted, rotated and put back.
INGOT_INLINE void rotate_head(float* x, const RowAngles& angles, const RotaryTable& table, bool inverse) {
  const int64_t pairs = table.pairs;
  if (!table.interleaved) return rotate_halves(x, angles, pairs, inverse);
  float halves[kMaxHeadWidth];
  for (int64_t i = 0; i < pairs; ++i) halves[i] = x[2 * i], halves[pairs + i] = x[2 * i + 1];
  rotate_halves(halves, angles, pairs, inverse);
  for (int64_t i = 0; i < pairs; ++i) x[2 * i] = halves[i], x[2 * i + 1] = halves[pairs + i];
}

}  // namespace ingot::INGOT_ISA
