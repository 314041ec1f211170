// Powers in double that have the same bits on the CPU and on GPUs, whose libraries round theirs otherwise.
// Plain.
#pragma once
#include "device/gpu/anywhere.h"

namespace ingot {

/// x^y for x in [0, 1] and y >= 0, within (4 + 2 y |log x|) units of the last place; 0 below e^-700. By
/// exp(y log x): the logarithm's series of atanh, the exponential's of Taylor, both after a division by a
/// power of two.
INGOT_ANYWHERE double power(double x, double y) {
  constexpr double kLog2High = 6.93147180369123816490e-01, kLog2Low = 1.90821492927058770002e-10;
  if (y == 0 || x == 1) return 1;
  if (y == 1 || !(x > 0)) return x;
  double m = x, halvings = 0;
  for (; m < 0.70710678118654752440; m *= 2) halvings += 1;
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 0;
  for (int i = 23; i > 0; i -= 2) series = series * square + 1.0 / i;
  const double log = 2 * s * series - halvings * kLog2Low - halvings * kLog2High;
  const double z = y * log;
  if (!(z > -700)) return 0;
  const auto twos = static_cast<int>(0.5 - z / (kLog2High + kLog2Low));
  const double rest = z + twos * kLog2High + twos * kLog2Low;
  double result = 1;
  for (int i = 15; i > 0; --i) result = 1 + result * rest / i;
  for (int i = 0; i < twos; ++i) result *= 0.5;
  return result;
}

}  // namespace ingot
