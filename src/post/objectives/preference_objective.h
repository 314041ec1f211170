// The objective of phases of kind "preference": a loss on pairs (preference_loss.h) as a function of tokens.
//
// Columns: `sequence` 2 i for the chosen and 2 i + 1 for the rejected sequence of pair i of the batch, both
// in one row; `reference` where the loss has one. Tokens without target or sequence do not count.
// ObjectiveInputs::baseline is KTO's z.
#pragma once
#include <memory>

#include "train/objective.h"
#include "train/post_recipe.h"

namespace ingot {

/// Sums over the pairs of a step, in this order.
enum class PreferenceSum : size_t {
  pairs,          ///< with both sequences
  chosen,         ///< chosen sequences
  rejected,       ///< rejected sequences
  reward_chosen,  ///< implicit rewards (preference_loss.h)
  reward_rejected,
  margin,   ///< reward_chosen - reward_rejected, of pairs
  correct,  ///< pairs whose margin is positive; half where it is 0
  tokens_chosen,
  tokens_rejected,
  logprob_chosen,  ///< over the tokens of sequences
  logprob_rejected,
  ratio_chosen,  ///< log-probability minus the reference's
  ratio_rejected,
  count
};

std::shared_ptr<const Objective> preference_objective(const PreferenceConfig& config);

}  // namespace ingot
