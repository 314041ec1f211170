// Finds values that are not finite, fast enough to look at everything that is saved or loaded.
#pragma once
#include <cstdint>

#include "base/dtype.h"

namespace ingot {

/// Index of the first NaN or infinity among `count` values; -1: there is none. Integers are finite. Uses the
/// calling thread alone.
int64_t first_not_finite(const void* values, int64_t count, DType dtype);

/// The value at `index` of floating-point values.
double value_at(const void* values, int64_t index, DType dtype);

}  // namespace ingot
