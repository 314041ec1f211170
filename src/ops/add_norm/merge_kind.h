// How add_norm merges a sublayer's output into the residual stream: for kernels, which see no tape.
#pragma once
#include <cstdint>

#include "base/enum.h"

namespace ingot {

/// none: h is normed from x alone. add: s = x + y. affine, scaled: learned scales and biases (add_norm.h).
enum class MergeKind : uint8_t { none, add, affine, scaled };
constexpr auto enum_names(MergeKind) {
  return names_in_order<MergeKind>("none", "add", "affine", "scaled");
}

}  // namespace ingot
