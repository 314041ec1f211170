// A soft cap as kernels take it (plain header); see ops/soft_cap.h.
#pragma once

namespace ingot {

/// cap 0: none.
struct SoftCapFactors {
  float cap = 0, inverse_divisor = 1, shift = 0;
};

}  // namespace ingot
