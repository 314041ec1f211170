// The objective of phases of kind "rl": policy_loss.h over the columns of a batch.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "post/rl/policy_loss.h"
#include "train/objective.h"

namespace ingot {

/// What the objective sums over tokens in the loss, in this order, to see how far the policy has moved from
/// the one that was recorded: see PolicyShift.
std::vector<std::string> policy_sums();

/// Loss: the sum over tokens of weight * (policy_term() + rule.kl * reference_term()); a batch has a column
/// `reference` where rule.kl is not 0. Of a token that no policy drew (`recorded` is NaN: text_replay.h) it
/// is weight * -log p. With `on_policy` cotangents come from the batch's column: recorded log-probabilities
/// are those of the forward pass. All are of logits / temperature.
std::shared_ptr<const Objective> policy_objective(const PolicyLoss& rule, bool on_policy,
                                                  double temperature = 1);

/// How the trained policy p differs from the recorded one q on the tokens that q drew.
struct PolicyShift {
  double kl = 0;           ///< mean of p/q - 1 - log p/q: KL(q | p), never negative; nats per token
  double ratio = 1;        ///< mean of p/q
  double correlation = 1;  ///< Pearson's r of probabilities; 1 where they do not vary
  double reference = 0;    ///< mean of reference_term(); 0 without a reference
  double masked = 0;       ///< share of tokens without a gradient because of clip or mask
  double text = 0;         ///< mean of -log p over the tokens that no policy drew; 0 without any
  /// From the sums of a step.
  static PolicyShift of(std::span<const double> sums);
};

}  // namespace ingot
