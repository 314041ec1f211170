// The kind of phases "rl": checks of its settings, its objective, its source.
#pragma once
#include "train/phase_kind.h"

namespace ingot {

/// "rl": reinforcement learning with verifiable rewards, set by [phases.rl] (train/rl_recipe.h).
PhaseKind rl_kind();

}  // namespace ingot
