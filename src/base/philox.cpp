// See philox.h.
#include "base/philox.h"

#include <cmath>

namespace ingot {

double Random::normal(uint64_t index) const {
  const Philox4 b = block(index / 2);
  // (0, 1] for the logarithm, 53 bits each.
  const double u = (static_cast<double>((uint64_t{b[0]} << 21) ^ (b[1] >> 11)) + 1.0) * 0x1p-53;
  const double v = static_cast<double>((uint64_t{b[2]} << 21) ^ (b[3] >> 11)) * 0x1p-53;
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 6.283185307179586476925 * v;
  return index % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle);
}

}  // namespace ingot
