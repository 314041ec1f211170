// For the kernels of qk_prepare and cca: the rotation of a head. Included only by kernel files; elementwise,
// so its bits do not depend on the vector length.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/reduce.h"
#include "ops/sequence/rotary.h"

namespace ingot::INGOT_ISA {

/// A pair (a, b) turned by the angle of cosine c and sine s.
INGOT_INLINE Vec turned_first(Vec a, Vec b, Vec c, Vec s) {
  return fma(a, c, zero() - b * s);
}
INGOT_INLINE Vec turned_second(Vec a, Vec b, Vec c, Vec s) {
  return fma(b, c, a * s);
}

#if defined(INGOT_ISA_gpu)

/// n channels of a head from channel i, turned by the angles of the position or (inverse) by their negatives;
/// x(channel) is what they and their partners were before. NaN for a position that no table has.
template <class F>
INGOT_INLINE Vec turned_n(const RotaryTable& table, int32_t position, bool inverse, int64_t i, int n, F&& x) {
  if (position < 0 || position >= RotaryTable::kMaxPositions) return set1(as_float_bits(0x7FC00000u));
  const int64_t pairs = table.pairs;
  const auto channel = [&](int k) { return i + first_lane() + k; };
  const auto is_second = [&](int64_t c) { return table.interleaved ? c % 2 == 1 : c >= pairs; };
  const Vec own = four_floats([&](int k) { return first_lane() + k < n ? x(channel(k)) : 0.0f; });
  Vec partner = zero(), cosine = zero(), sine = zero();
  INGOT_UNROLL
  for (int k = 0; k < kLanesOfThread; ++k) {
    const int64_t c = channel(k);
    if (first_lane() + k >= n || c >= 2 * pairs) continue;
    const int64_t step = table.interleaved ? 1 : pairs;
    partner.v[k] = x(is_second(c) ? c - step : c + step);
    const int64_t pair = table.interleaved ? c / 2 : is_second(c) ? c - pairs : c;
    rotary_angle(table, position, pair, cosine.v[k], sine.v[k]);
  }
  if (inverse) sine = zero() - sine;
  const Mask second = four_bools([&](int k) { return is_second(channel(k)); });
  const Mask stays = four_bools([&](int k) { return channel(k) >= 2 * pairs; });
  const Vec turned =
      select(second, turned_second(partner, own, cosine, sine), turned_first(own, partner, cosine, sine));
  return select(stays, own, turned);
}

#else

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
    store_n(x + i, turned_first(a, b, c, s), n);
    store_n(x + pairs + i, turned_second(a, b, c, s), n);
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

#endif

}  // namespace ingot::INGOT_ISA
