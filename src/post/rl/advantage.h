// Advantages of the rollouts of one group: samples of one prompt, judged. Pure functions in double.
// r: task reward; b: bonus (length_reward.h); s = r + b; means over the group's G rollouts.
//
//   reinforce  s                                    no baseline
//   rloo       s_i - mean of the others' s          ([RLOO])
//   grpo       (s - mean s) / (deviation of s + 1e-6), with G - 1 ([GRPO]; as TRL, verl)
//   dr_grpo    s - mean s                           ([Dr-GRPO])
//   maxrl      (s - mean s) / mean r, 0 where mean r is 0   ([ZAYA1-8B] §IV-B; Tajwar et al. 2026)
#pragma once
#include <span>
#include <vector>

#include "train/rl_recipe.h"

namespace ingot {

/// One advantage per rollout of a group. `bonuses`: empty, or one per reward. A group of one has advantage 0
/// under every kind but reinforce. A constant added to all rewards changes none but those of reinforce and
/// maxrl. Error where a reward or bonus is not finite: it names the kind of number and its place.
std::vector<double> advantages(AdvantageKind kind, std::span<const double> rewards,
                               std::span<const double> bonuses = {});

/// Whether rollouts of the group differ in task reward. Where they do not, no kind but reinforce learns from
/// the task (a bonus alone is no signal: DAPO's dynamic sampling, [ZAYA1-8B] §IV-B).
bool has_signal(std::span<const double> rewards);

}  // namespace ingot
