// From judged replies to a training batch: advantages of each group, and whole sequences packed into rows
// with the columns that a policy loss needs. Pure.
#pragma once
#include <vector>

#include "data/batch.h"
#include "post/rl/aggregation.h"
#include "post/rl/rollout.h"

namespace ingot {

struct PolicyBatchShape {
  int64_t sequence = 0;  ///< positions of a row
  int64_t multiple = 1;  ///< the batch has a multiple of so many rows
  Aggregation aggregation = Aggregation::constant;
  double constant = 1;  ///< of aggregation constant
};

/// Sets the advantage of every reply of a group that counts; 0 of the others.
void set_advantages(RolloutGroup& group, AdvantageKind kind);

/// Every reply that counts is one sequence: its prompt and its tokens. Targets are the drawn tokens; forced
/// ones are masked, and so is the prompt. Columns: weight, advantage, recorded, cotangent (-weight
/// advantage), sequence (in order of the groups), version. The divisor is the aggregation's; no result
/// depends on how sequences are packed. Error where one is longer than a row, or no token is in the loss.
data::Batch policy_batch(const std::vector<RolloutGroup>& groups, const PolicyBatchShape& shape);

/// Gives the batch of these groups the experts that were chosen when its tokens were drawn, of a model with
/// `layers` MoE layers: a later forward pass with other weights uses the same ones (R3, [ZAYA1-8B] §IV-B3).
/// Positions that no engine has computed (padding, the last token of a reply) get the first experts.
void replay_routes(const std::vector<RolloutGroup>& groups, int64_t layers, data::Batch& batch);

/// Lets each target's distribution be over the ids that it was drawn from (Rollout::kept). Nothing where no
/// reply has any.
void replay_kept(const std::vector<RolloutGroup>& groups, data::Batch& batch);

/// Adds what a reference says ([B*S], of every target) as a column, and to the cotangents its divergence's
/// derivative at the recorded log-probabilities, times `coefficient` and the token's weight.
void add_reference(std::vector<float> logprobs, double coefficient, data::Batch& batch);

/// Positions of the batch that hold tokens of sequences, as a share of all.
double fill_of(const data::Batch& batch);

}  // namespace ingot
