// Inputs of multi-token prediction: for each depth k, the ids and targets of a batch shifted by k positions
// within each span ("DeepSeek-V3 Technical Report", §2.2).
#pragma once
#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "nn/config.h"

namespace ingot {

struct ShiftedTargets {
  std::vector<int32_t> ids;  ///< [B*S]; 0 in the last k positions of a span, on which no valid target depends
  std::vector<int32_t> targets;  ///< [B*S]; masked in the last k positions of a span
  /// Factor on the summed loss of this depth beside the next token's: coefficient / depths, times the ratio
  /// of the batch's divisor (the next token's valid targets) to this depth's, so that dividing by it gives
  /// the mean of this depth.
  double weight = 0;
};

/// One per depth, 1 first; empty without multi-token prediction.
std::vector<ShiftedTargets> shifted_targets(const data::Batch& batch, const MtpConfig& mtp);

}  // namespace ingot
