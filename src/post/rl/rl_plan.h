// What the plan of a run (`ingot run RECIPE --plan`) says of a phase of kind "rl": replies and tokens of a
// step and of the phase, how often its rows are asked, what sampling costs beside training. Pure but for the
// files of rows, which are counted where they are there.
#pragma once
#include "train/phase_kind.h"

namespace ingot {

/// Bytes of one reply of `tokens` tokens whose experts are kept (Rollout::routes): one a token and choice.
int64_t route_bytes(const ModelConfig& model, int64_t moe_layers, int64_t tokens);

/// Rows of `sequence` positions for so many groups of `size` replies that stand together. `mean`: tokens of a
/// reply on average; 0: all have max_tokens. A prompt is counted as a quarter of its reply.
PlannedRows rows_of_replies(int64_t groups, int64_t size, int64_t max_tokens, int64_t mean, int64_t sequence);

PhaseWords describe_rl(const Recipe& recipe, size_t phase, const PhaseWork& work);

}  // namespace ingot
