// Prompts of a phase of kind "rl" that show candidates and ask for one solution ([phases.rl.aggregation]):
// the policy's own replies to the problem ("self") and a teacher's ("expert"), in the message that test-time
// compute shows (reason/aggregate.h). The reply is judged as any other; only of a first round, as the source
// does ([ZAYA1-8B] §VI-B).
#pragma once
#include <span>

#include "chat/chat_template.h"
#include "models/model.h"
#include "post/rl/rollout_sampler.h"
#include "reason/aggregate.h"
#include "report/metrics.h"
#include "train/rl_recipe.h"

namespace ingot {

/// Whether prompt `number` of a run shows candidates: `share` of any so many in a row, about.
bool shows_candidates(const RlAggregationConfig& config, int64_t number);

class AggregationPrompts {
 public:
  /// All must outlive this.
  AggregationPrompts(const Model& model, const Tokenizer& tokenizer, const chat::ChatTemplate& chat_template,
                     const RlConfig& config, uint64_t seed);
  /// Makes prompts of these groups' problems, which sampler.ask() has rendered as they are. Their candidates
  /// are functions of weights, problems and keys. Error: a prompt and its reply do not fit; an environment
  /// without a teacher, where experts are asked for.
  void show(std::span<RolloutGroup* const> groups, const RolloutSampler& sampler) const;

 private:
  const Model& model_;
  const Tokenizer& tokenizer_;
  const chat::ChatTemplate& template_;
  const RlConfig& config_;
  uint64_t seed_;
  reason::AggregateTemplate aggregate_;
};

/// rl/aggregation/reward    mean reward of replies to such prompts
/// rl/aggregation/right     share of the candidates that are right
/// rl/aggregation/picked    mean reward where at least one is
/// rl/aggregation/rescued   mean reward where none is
void add_aggregation_metrics(const std::vector<const RolloutGroup*>& groups, MetricRow& row);

}  // namespace ingot
