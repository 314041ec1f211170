// The kind of phases "rl": checks of its settings, its objective, its source.
#pragma once
#include "train/phase_kind.h"

namespace ingot {

/// "rl": reinforcement learning with verifiable rewards, set by [phases.rl] (train/rl_recipe.h).
PhaseKind rl_kind();

/// For validate() of kinds that sample on the trainer's own weights: adds what keeps a rank from having a
/// whole model that decodes token by token.
void require_whole_models(const Recipe& recipe, size_t phase, ConfigErrors& errors);

}  // namespace ingot
