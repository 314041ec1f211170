// How the losses of a batch's tokens become one number: a weight per token and one divisor of the whole
// batch, both known before the forward pass, so results do not depend on micro-batches or ranks. N sequences
// with n_i tokens in the loss:
//
//   constant  weight 1,      divisor N Z   sequence mean of token sums over a constant Z ([Dr-GRPO])
//   token     weight 1,      divisor sum n_i                                             (DAPO)
//   sequence  weight 1/n_i,  divisor N                                                   (GRPO)
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "train/rl_recipe.h"

namespace ingot {

struct AggregationWeights {
  std::vector<double> weight;  ///< of each token of sequence i; 0 where it has none in the loss
  double divisor = 1;          ///< 1 where nothing is in the loss
};
/// `tokens`: in the loss, of each sequence. `constant`: Z, above 0. Sequences without such tokens count in N
/// (their loss is 0).
AggregationWeights aggregate(Aggregation kind, std::span<const int64_t> tokens, double constant);

}  // namespace ingot
