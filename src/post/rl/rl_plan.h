// What the plan of a run (`ingot run RECIPE --plan`) says of a phase of kind "rl": replies and tokens of a
// step and of the phase, how often its rows are asked, what sampling costs beside training. Pure but for the
// files of rows, which are counted where they are there.
#pragma once
#include "train/phase_kind.h"

namespace ingot {

/// Bytes of one reply of `tokens` tokens whose experts are kept (Rollout::routes): one a token and choice.
int64_t route_bytes(const ModelConfig& model, int64_t moe_layers, int64_t tokens);

PhaseWords describe_rl(const Recipe& recipe, size_t phase, const PhaseWork& work);

}  // namespace ingot
