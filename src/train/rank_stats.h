// What the ranks of a step know together: its statistics summed over the ranks that saw other tokens.
#pragma once
#include "parallel/rank_groups.h"
#include "train/step.h"

namespace ingot {

/// Sums the statistics of the data ranks' shares (largest logits: the largest of all ranks). Router entropies must still be
/// sums over tokens. All ranks end with the same numbers.
void combine(const RankGroups& groups, StepStats& stats);

}  // namespace ingot
