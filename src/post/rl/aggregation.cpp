// See aggregation.h.
#include "post/rl/aggregation.h"

#include "base/error.h"

namespace ingot {

AggregationWeights aggregate(Aggregation kind, std::span<const int64_t> tokens, double constant) {
  INGOT_CHECK(constant > 0, "constant {}", constant);
  AggregationWeights result;
  double sum = 0;
  for (const int64_t n : tokens) {
    const auto count = static_cast<double>(n);
    sum += count;
    result.weight.push_back(n == 0 ? 0 : kind == Aggregation::sequence ? 1 / count : 1);
  }
  if (sum == 0) return result;
  const auto sequences = static_cast<double>(tokens.size());
  result.divisor = kind == Aggregation::token      ? sum
                   : kind == Aggregation::sequence ? sequences
                                                   : sequences * constant;
  return result;
}

}  // namespace ingot
