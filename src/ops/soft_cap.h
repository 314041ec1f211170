// The soft cap of output logits, stated once for the head's statistics and for sampling:
//   l = shift + cap tanh(z / divisor),  dl/dz = (cap / divisor) (1 - ((l - shift) / cap)^2);  cap 0: l = z
// Gemma 2's final cap has divisor = cap and shift 0; modded-nanogpt's A sigmoid(z / B) is A/2 + A/2 tanh(z / 2B).
#pragma once
#include <cmath>

#include "device/cpu/soft_cap_factors.h"

namespace ingot {

struct SoftCap {
  double cap = 0;
  double divisor = 1;
  double shift = 0;

  bool on() const { return cap > 0; }
  double value(double z) const { return on() ? shift + cap * std::tanh(z / divisor) : z; }
  /// At the capped value l.
  double slope(double l) const {
    const double u = (l - shift) / cap;
    return on() ? cap / divisor * (1 - u * u) : 1;
  }
  SoftCapFactors factors() const {
    return {static_cast<float>(cap), static_cast<float>(1 / divisor), static_cast<float>(shift)};
  }
};

}  // namespace ingot
