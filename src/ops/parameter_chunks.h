// Gradients of small parameters are sums over rows. So that they do not depend on threads, rows are summed in
// chunks of 64, counted from the first row of the call, and the chunks' partial sums are added in ascending
// order.
#pragma once
#include <cstdint>

#include "tape/op.h"

namespace ingot {

inline constexpr int64_t kParameterChunkRows = 64;

constexpr int64_t parameter_chunks(int64_t rows) {
  return (rows + kParameterChunkRows - 1) / kParameterChunkRows;
}

/// Adds the chunks' partial sums, `width` floats each, the first at `partials`, `stride` floats apart, and
/// writes the sum to the slot (f32, `width` elements; overwrites or accumulates). No chunks: the sum is 0.
/// Nobody wants it: does nothing.
void combine_parameter_chunks(const float* partials, int64_t chunks, int64_t stride, int64_t width,
                              const GradSlot& slot);

}  // namespace ingot
