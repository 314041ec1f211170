// What a phase of kind rl takes beside weights, optimizer and the passes of its steps: the cache and calls of
// the engine that draws replies, the replies themselves, the reference. For the preflight.
#pragma once
#include "models/model.h"
#include "train/phase_kind.h"

namespace ingot {

/// Memory: where replies have their full length and prompts a quarter of it; cached keys and values never
/// take more than rl.cache_mib. Work: of as many groups as bring those with a signal (rl.signal_share), of
/// replies as long as planned rows hold.
SourceCost rollout_cost(const Model& model, const PhaseConfig& phase);

}  // namespace ingot
