// quantize's and dequantize's work on a tile: the text of the kernels of every instruction set and of GPUs.
// Numbers are taken apart as integers, so that all have the same bits.
#pragma once
#include "device/simd/loops.h"
#include "device/simd/simd_uint8.h"
#include "ops/quantize/isa_quantize.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int32_t kInfinity = 0x7F800000, kQuietNan = 0x7FC00000, kNanScale = 0xFF, kNanCode = 0x7F;

INGOT_INLINE int columns_of(int64_t width, int64_t tile) {
  return static_cast<int>(min64(kQuantizedTile, width - tile * kQuantizedTile));
}

/// f(first, how many) over the columns of a tile; most tiles are whole, which the compiler unrolls.
template <class F>
INGOT_INLINE void each_of_tile(int n, F&& f) {
  if (n == kQuantizedTile)
    each_vector(kQuantizedTile, f);
  else
    each_vector(n, f);
}

/// The largest magnitude; infinite where a number is not finite, which times 0 is NaN.
template <class X>
INGOT_INLINE float largest_of(const X* x, int n) {
  Vec most = zero(), finite = zero();
  each_of_tile(n, [&](int64_t i, int count) {
    const Vec v = load_n(x + i, count);
    most = max(most, as_float(as_int(v) & set1i(0x7FFFFFFF)));
    finite = fma(v, zero(), finite);
  });
  return reduce_max(select(is_nan(finite), as_float(set1i(kInfinity)), most));
}

INGOT_INLINE uint32_t scalar_bits(float x) {
#if defined(INGOT_ISA_gpu)
  return bits_of(x);
#else
  return __builtin_bit_cast(uint32_t, x);
#endif
}

/// The scale as E8M0. amax = m 2^E, 1 <= m < 2, is at most 448 = 1.75 2^8 times 2^(E-8), or, where m > 1.75,
/// 2^(E-7): adding to the bits what 1.75 lacks of 2 carries into the exponent there.
INGOT_INLINE int32_t scale_of(float amax) {
  const uint32_t bits = scalar_bits(amax);
  if (bits >= uint32_t{kInfinity}) return kNanScale;
  const auto biased = static_cast<int32_t>((bits + 0x1FFFFFu) >> 23);
  return biased > 8 ? biased - 8 : 0;
}

/// The code of numbers of at most 448. Normal ones keep three bits of the mantissa; those below 2^-6 are
/// counted in steps of 2^-9, which are the last bits of 2^14 to 2^15.
INGOT_INLINE VecI codes_of(Vec x) {
  const VecI u = as_int(x), a = u & set1i(0x7FFFFFFF);
  const VecI even = shift_right<20>(a) & set1i(1);
  const VecI normal = shift_right<20>(a + set1i(0x7FFFF) + even) - set1i((127 - 7) << 3);
  const VecI small = as_int(as_float(a) + set1(0x1p14f)) - set1i((127 + 14) << 23);
  const Mask is_small = set1i((127 - 6) << 23) > a;
  return as_int(select(is_small, as_float(small), as_float(normal))) | (shift_right<24>(u) & set1i(0x80));
}

/// What codes stand for, times the scale.
INGOT_INLINE Vec values_of(VecI codes, Vec scale) {
  const VecI a = codes & set1i(0x7F);
  const Vec normal = as_float(shift_left<20>(a) + set1i((127 - 7) << 23));
  const Vec small = as_float(a + set1i((127 + 14) << 23)) - set1(0x1p14f);
  const VecI size = as_int(select(set1i(8) > a, small, normal) * scale);
  const Vec signed_size = as_float(size | shift_left<24>(codes & set1i(0x80)));
  return select(equal(a, set1i(kNanCode)), as_float(set1i(kQuietNan)), signed_size);
}

template <class X>
INGOT_INLINE void quantize_tile(const QuantizeRows& p, const X* x, int64_t row, int64_t tile) {
  const int n = columns_of(p.width, tile);
  x += row * p.width + tile * kQuantizedTile;
  uint8_t* const q = p.q + row * (p.width + quantized_tiles(p.width));
  uint8_t* const codes = q + tile * kQuantizedTile;
  const int32_t scale = scale_of(largest_of(x, n));
  if (writes_scalars()) q[p.width + tile] = static_cast<uint8_t>(scale);
  if (scale == kNanScale)
    return each_vector(n, [&](int64_t i, int count) { store_bytes_n(codes + i, set1i(kNanCode), count); });
  const Vec factor = as_float(set1i((254 - scale) << 23));  // 2^-e
  each_of_tile(n, [&](int64_t i, int count) {
    store_bytes_n(codes + i, codes_of(load_n(x + i, count) * factor), count);
  });
}

template <class X>
INGOT_INLINE void dequantize_tile(const DequantizeRows& p, X* x, int64_t row, int64_t tile) {
  const int n = columns_of(p.width, tile);
  x += row * p.width + tile * kQuantizedTile;
  const uint8_t* const q = p.q + row * (p.width + quantized_tiles(p.width));
  const uint8_t* const codes = q + tile * kQuantizedTile;
  const int32_t scale = q[p.width + tile];
  if (scale == kNanScale)
    return each_vector(n, [&](int64_t i, int count) { store_n(x + i, as_float(set1i(kQuietNan)), count); });
  const Vec factor = as_float(set1i(scale > 0 ? scale << 23 : 1 << 22));  // 2^-127 is subnormal
  each_of_tile(n, [&](int64_t i, int count) {
    store_n(x + i, values_of(load_bytes_n(codes + i, count), factor), count);
  });
}

}  // namespace
}  // namespace ingot::INGOT_ISA
