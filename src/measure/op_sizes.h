// The sizes of a product or of attention, from the call of an op: what its speed depends on; and shapes as
// text.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tape/observer.h"

namespace ingot {

/// 0: not known, or of another op.
struct OpSizes {
  int64_t m = 0, n = 0, k = 0;    ///< of one product (of an expert): rows, columns, length of its sums
  int64_t width = 0, length = 0;  ///< of attention: head, tokens of a sequence
  auto operator<=>(const OpSizes&) const = default;
};

/// Whether the op of this name multiplies by a weight, and does little else.
bool is_product(std::string_view op);

/// Of a product from its weight, [N, K] or [E, N, K] of E experts, and its FLOPs; of attention from the pairs
/// of query and key that it multiplies: a causal sequence of L tokens has L / 2 a row.
OpSizes sizes_of(const OpRun& run);

/// How much larger each of the first sizes is, as a natural logarithm; 0 where one of the two is not known.
std::array<double, 5> log_ratios(const OpSizes& sizes, const OpSizes& others);

/// "1024x768 f32, 2304x768 f32"; undefined ones are left out.
std::string shapes_of(std::span<const Tensor> tensors);

}  // namespace ingot
