// Elementary functions for kernels, written once over simd.h: the body of a loop, its tail (masked load, same
// code) and the scalar form of vmath_scalar.h give the same bits on every instruction set. Branch-free;
// coefficients come from tools/oracle/vmath_coefficients.py. Largest errors against double, in units of the
// last place, as measured by quick.Vmath over the whole range: exp 1.0, log 0.8, sigmoid 2.2, tanh 1.2,
// erf 1.5.
//
// Ranges: exp under- and overflows gradually (subnormals right, exp(-inf) = 0, exp(88.73) = inf); log(0) =
// -inf, log(x < 0) = NaN, log(inf) = inf; NaN in, NaN out everywhere.
#pragma once
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

INGOT_INLINE Vec vexp(Vec x) {
  // e^x = 2^n e^r with |r| <= ln2 / 2. The order of min and max lets NaN through.
  x = max(set1(-104.0f), min(set1(89.0f), x));
  const Vec magic = set1(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec t = fma(x, set1(1.44269504f), magic);
  const VecI n = as_int(t) - as_int(magic);
  const Vec nf = t - magic;
  Vec r = fma(nf, set1(-0.693359375f), x);
  r = fma(nf, set1(2.1219444e-4f), r);
  Vec p = set1(0.001392618359f);
  p = fma(p, r, set1(0.008363179053f));
  p = fma(p, r, set1(0.04166655462f));
  p = fma(p, r, set1(0.1666657699f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r * r, r) + set1(1.0f);
  // 2^n in two factors, so that n = 128 and n = -150 need no special case.
  const VecI half = shift_right<1>(n);
  const VecI bias = set1i(127);
  return p * as_float(shift_left<23>(half + bias)) * as_float(shift_left<23>(n - half + bias));
}

INGOT_INLINE Vec vlog(Vec x) {
  const Vec tiny = set1(1.17549435e-38f);
  const Mask subnormal = x < tiny;
  const Vec scaled = select(subnormal, x * set1(8388608.0f), x);
  // x = m 2^e with m in [sqrt(1/2), sqrt(2))
  const VecI shifted = as_int(scaled) - set1i(0x3F3504F3);
  const Vec e = convert(shift_right<23>(shifted)) - select(subnormal, set1(23.0f), zero());
  const Vec f = as_float((shifted & set1i(0x007FFFFF)) + set1i(0x3F3504F3)) - set1(1.0f);
  Vec p = set1(0.06971611471f);
  p = fma(p, f, set1(-0.1147973385f));
  p = fma(p, f, set1(0.1168541992f));
  p = fma(p, f, set1(-0.1242568733f));
  p = fma(p, f, set1(0.1424905765f));
  p = fma(p, f, set1(-0.1666780232f));
  p = fma(p, f, set1(0.2000071575f));
  p = fma(p, f, set1(-0.2499999696f));
  p = fma(p, f, set1(0.3333333118f));
  const Vec square = f * f;
  Vec r = fma(p * f, square, e * set1(-2.12194440e-4f));
  r = fma(square, set1(-0.5f), r);
  r = fma(e, set1(0.693359375f), r + f);
  const Vec infinity = as_float(set1i(0x7F800000));
  r = select(x < infinity, r, x);  // +inf and NaN
  r = select(x < zero(), as_float(set1i(0x7FC00000)), r);
  return select(equal(as_int(x) + as_int(x), set1i(0)), zero() - infinity, r);  // both zeros
}

/// 1 / (1 + e^-x), with full relative accuracy for negative x too.
INGOT_INLINE Vec vsigmoid(Vec x) {
  const Vec z = vexp(as_float(as_int(x) | set1i(INT32_MIN)));  // e^-|x|
  const Vec one = set1(1.0f);
  return select(x < zero(), z, one) / (one + z);
}

INGOT_INLINE Vec vtanh(Vec x) {
  const VecI sign = as_int(x) & set1i(INT32_MIN);
  const Vec a = as_float(as_int(x) ^ sign);
  const Vec z = a * a;
  Vec p = set1(0.002292744816f);
  p = fma(p, z, set1(-0.008343945516f));
  p = fma(p, z, set1(0.02176891865f));
  p = fma(p, z, set1(-0.05395925958f));
  p = fma(p, z, set1(0.1333330356f));
  p = fma(p, z, set1(-0.3333333317f));
  const Vec small = fma(p * z, a, a);
  const Vec one = set1(1.0f);
  const Vec big = one - set1(2.0f) / (vexp(a + a) + one);
  return as_float(as_int(select(a < set1(0.625f), small, big)) ^ sign);
}

INGOT_INLINE Vec verf(Vec x) {
  const VecI sign = as_int(x) & set1i(INT32_MIN);
  const Vec a = as_float(as_int(x) ^ sign);
  const Vec z = a * a;
  Vec p = set1(7.875875063e-5f);
  p = fma(p, z, set1(-0.0008016864287f));
  p = fma(p, z, set1(0.005189087423f));
  p = fma(p, z, set1(-0.02685421201f));
  p = fma(p, z, set1(0.1128359472f));
  p = fma(p, z, set1(-0.3761262667f));
  p = fma(p, z, set1(0.1283791658f));
  const Vec small = fma(p, a, a);
  // 1 - e^q with q = log(erfc(a)); beyond 4 the result is 1 to the last bit. min keeps NaN.
  const Vec u = min(set1(4.0f), a) - set1(2.5f);
  Vec q = set1(-7.58268197e-8f);
  q = fma(q, u, set1(1.615581148e-6f));
  q = fma(q, u, set1(-1.292569587e-5f));
  q = fma(q, u, set1(7.738760363e-5f));
  q = fma(q, u, set1(-0.0004207916506f));
  q = fma(q, u, set1(0.002165169871f));
  q = fma(q, u, set1(-0.01085811294f));
  q = fma(q, u, set1(-0.9438936446f));
  q = fma(q, u, set1(-5.352680749f));
  q = fma(q, u, set1(-7.806815277f));
  const Vec big = set1(1.0f) - vexp(q);
  return as_float(as_int(select(a < set1(1.0f), small, big)) ^ sign);
}

}  // namespace ingot::INGOT_ISA
