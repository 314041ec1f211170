// Rollouts on many ranks: data ranks divide the groups, and all know all replies.
#pragma once
#include <vector>

#include "post/rl/rollout_sampler.h"
#include "train/engine.h"

namespace ingot {

/// Draws and judges as RolloutSampler::sample() does, each group on one data rank. Every rank calls it with
/// the same groups and gets the same replies. MoE models sample everything on every rank: their forward
/// passes may exchange counts, which all ranks then have to do alike. `cost` gets what this rank took.
void sample_on_data_ranks(const TrainEngine& engine, const RolloutSampler& sampler,
                          std::vector<RolloutGroup>& groups, RolloutCost& cost);

}  // namespace ingot
