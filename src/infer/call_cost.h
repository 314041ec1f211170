// What a call of the engine takes, from a dry run: for plans of runs that sample or do tasks.
#pragma once
#include "models/model.h"

namespace ingot {

/// A forward pass without a backward one, up to the head.
struct CallCost {
  int64_t bytes = 0;  ///< activations at their peak
  double flops = 0;   ///< of a row
};

/// Of `rows` rows of one sequence. The model may have no weights (Backing::nothing).
CallCost call_cost(const Model& model, int64_t rows);

}  // namespace ingot
