// See rl_kind.h.
#include "post/rl/rl_kind.h"

#include <utility>

#include "base/error.h"
#include "environments/environment.h"
#include "post/rl/policy_objective.h"
#include "post/rl/rl_plan.h"
#include "post/rl/rl_source.h"
#include "post/rl/rollout_cost.h"

namespace ingot {
namespace {

/// Found before the first phase of the run begins, not when this one does. Files may be made meanwhile.
void validate_environments(const RlConfig& config, const std::string& at, ConfigErrors& errors) {
  for (size_t i = 0; i < config.environments.size(); ++i) {
    const RlEnvironmentConfig& e = config.environments[i];
    const std::string field = fmt::format("{}rl.environments.{}.", at, i);
    if (e.name.empty() || e.name.ends_with(".jsonl")) continue;
    try {
      const environments::DifficultyRange range = environments::find_environment(e.name)->difficulty();
      for (const auto& [key, value] :
           {std::pair{"least", e.least}, {"most", e.most}, {"difficulty", e.difficulty}})
        if (value && (*value < range.least || *value > range.most))
          errors.add(field + key, "'{}' has difficulties {} to {}, found {}", e.name, range.least, range.most,
                     *value);
    } catch (const Error& error) {
      errors.add(field + "name", "{}; {}", error.what(), error.hint());
    }
  }
}

/// Text is learned beside replies where the phase names sources of text and says how many rows.
void validate_replay(const Recipe& recipe, size_t phase, ConfigErrors& e) {
  const PhaseConfig& p = recipe.phases[phase];
  const std::string at = fmt::format("phases.{}.", phase);
  const int64_t rows = p.rl->replay.rows;
  bool any = false;
  for (const SourceWeight& w : p.weights) {
    any |= w.weight > 0;
    for (const SourceConfig& s : recipe.data.sources)
      if (s.name == w.source && (s.conversations || s.preferences || !s.prompt_field.empty()))
        e.add(at + "weights", "a phase of kind rl replays text, and source '{}' has rows of conversations",
              s.name);
  }
  if (rows == 0) {
    if (any)
      e.add(at + "rl.replay.rows", "the phase names `weights`: how many rows of a step show their text?");
    return;
  }
  if (!any) e.add(at + "weights", "rl.replay.rows = {} needs the sources of the text", rows);
  if (rows % recipe.data_ranks() != 0)
    e.add(at + "rl.replay.rows", "must be a multiple of the {} data ranks, found {}", recipe.data_ranks(),
          rows);
  if (p.rl->temperature != 1)
    e.add(at + "rl.replay.rows", "text is learned at temperature 1; rl.temperature is {}", p.rl->temperature);
  if (p.rl->updates_per_batch > 1 && recipe.model.moe.experts > 0)
    e.add(at + "rl.replay.rows",
          "replayed routes are of replies only: a model with experts replays text with "
          "rl.updates_per_batch = 1, found {}",
          p.rl->updates_per_batch);
}

void validate_rl(const Recipe& recipe, size_t phase, ConfigErrors& errors) {
  const PhaseConfig& p = recipe.phases[phase];
  const std::string at = fmt::format("phases.{}.", phase);
  if (!p.rl) {
    errors.add(at + "rl", "a phase of kind rl needs its table [phases.rl]");
    return;
  }
  validate_environments(*p.rl, at, errors);
  validate_replay(recipe, phase, errors);
  require_whole_models(recipe, phase, errors);
  if (p.sequence <= p.rl->max_tokens)
    errors.add(at + "sequence", "a row holds a prompt and a reply of up to {} tokens, found {}",
               p.rl->max_tokens, p.sequence);
  if (p.z_coefficient != 0 && (p.rl->temperature != 1 || p.rl->filters_tokens()))
    errors.add(
        at + "z_coefficient",
        "regularises the model's own logits; at another temperature, or with top_k, top_p or min_p, the "
        "head has others: 0, found {}",
        p.z_coefficient);
  if (p.rl->updates_per_batch > 1 && recipe.model.moe.experts > kMostReplayedExperts)
    errors.add(at + "rl.updates_per_batch", "routes of at most {} experts are replayed, the model has {}",
               kMostReplayedExperts, recipe.model.moe.experts);
  if (p.steps % p.rl->updates_per_batch != 0)
    errors.add(at + "steps", "must be a multiple of rl.updates_per_batch = {}, found {}",
               p.rl->updates_per_batch, p.steps);
}

PolicyLoss policy_loss_of(const RlLossConfig& c, double kl_reference) {
  return {.kind = c.kind,
          .clip_low = c.clip_low,
          .clip_high = c.clip_high,
          .dual_clip = c.dual_clip,
          .cispo_cap = c.cispo_cap,
          .delta = c.delta,
          .ratio_cap = c.ratio_cap,
          .kl = kl_reference};
}

}  // namespace

void require_whole_models(const Recipe& recipe, size_t phase, ConfigErrors& errors) {
  const std::string& kind = recipe.phases[phase].kind;
  const ParallelConfig& parallel = recipe.parallel;
  if (parallel.tensor * parallel.pipeline * parallel.context * parallel.expert > 1)
    errors.add(fmt::format("phases.{}.kind", phase),
               "{} samples on each rank with a whole model: tensor, pipeline, context and expert must be 1",
               kind);
  if (parallel.shard == ShardLevel::full)
    errors.add("parallel.shard", "{} samples on each rank with a whole model: none or optimizer", kind);
  if (recipe.model.moe.sees_future_tokens())
    errors.add("model.moe.selection", "expert_choice cannot decode token by token, which {} needs", kind);
}

PhaseKind rl_kind() {
  PhaseKind kind;
  kind.name = "rl";
  kind.validate = validate_rl;
  kind.objective = [](const PhaseConfig& phase) {
    const RlConfig& c = *phase.rl;
    return policy_objective(policy_loss_of(c.loss, c.kl_reference), c.updates_per_batch == 1, c.temperature);
  };
  kind.source = [](const SourceContext& context) { return std::make_unique<RlSource>(context); };
  kind.rows = [](const PhaseConfig& phase) {
    const RlConfig& c = *phase.rl;
    PlannedRows planned =
        rows_of_replies(c.prompts * c.samples, 1, c.max_tokens, c.reply_tokens, phase.sequence);
    planned.rows += c.replay.rows;
    return planned;
  };
  kind.source_cost = rollout_cost;
  kind.describe = describe_rl;
  kind.watches_loss = false;
  return kind;
}

}  // namespace ingot
