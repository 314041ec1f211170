// Inputs of multi-token prediction: for each depth k, the ids and targets of a batch k places further on, within each span
// (spec megatron-moe §1.20, MT-2 and MT-3).
#pragma once
#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "nn/config.h"

namespace ingot {

struct ShiftedTargets {
  std::vector<int32_t> ids;      ///< [B*S]; 0 on the last k rows of a span, which nothing valid depends on
  std::vector<int32_t> targets;  ///< [B*S]; masked on the last k rows of a span
  /// Factor on the summed loss of this depth beside the next token's: coefficient / depths, times the ratio of valid
  /// targets, so that dividing by the next token's count gives the mean of this depth.
  double weight = 0;
};

/// One per depth, 1 first; empty without multi-token prediction.
std::vector<ShiftedTargets> shifted_targets(const data::Batch& batch, const MtpConfig& mtp);

}  // namespace ingot
