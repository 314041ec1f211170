// Loss statistics of one head, and the evaluation of a whole model in one process.
#pragma once
#include "data/batch.h"
#include "models/model.h"

namespace ingot {

/// Sums of one head over tokens.
struct HeadStats {
  double nll = 0;        ///< sum of -logprob over valid tokens
  double objective = 0;  ///< what was minimised, as a sum (with z-loss)
  int64_t valid = 0;
  double lse = 0;  ///< sum of logsumexp over valid tokens
  double loss() const { return valid > 0 ? nll / static_cast<double>(valid) : 0; }
};

/// Adds the statistics of the next-token head over the valid targets of a batch, without a backward pass.
void evaluate(const Model& model, const data::Batch& batch, HeadStats& stats);

}  // namespace ingot
