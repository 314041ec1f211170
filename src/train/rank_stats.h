// The statistics of a step, combined over all ranks of a run.
#pragma once
#include "train/micro_step.h"

namespace ingot {

/// Sums over data ranks and pipeline stages; the largest attention logit is that of all ranks, those by head
/// are of this stage's layers. Before, all ranks have an entry for every router, and router entropies are
/// sums over tokens. Afterwards all ranks have the same numbers. Called by all ranks.
void combine(const RankGroups& groups, const PipelineGroups* pipe, StepStats& stats);

}  // namespace ingot
