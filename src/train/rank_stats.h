// What the ranks of a step know together: its statistics summed over the ranks that saw other tokens.
#pragma once
#include "train/step.h"

namespace ingot {

/// Sums the statistics of the data ranks' shares and of the pipeline's stages (largest logits: the largest of all ranks; by
/// head, those of this stage). All ranks have an entry for every router, and router entropies must still be sums over tokens.
/// All ranks end with the same numbers.
void combine(const StepRanks& ranks, StepStats& stats);

}  // namespace ingot
