// See rl_kind.h.
#include "post/rl/rl_kind.h"

#include "post/rl/policy_objective.h"
#include "post/rl/rl_source.h"

namespace ingot {
namespace {

void validate_rl(const Recipe& recipe, size_t phase, ConfigErrors& errors) {
  const PhaseConfig& p = recipe.phases[phase];
  const std::string at = fmt::format("phases.{}.", phase);
  if (!p.rl) {
    errors.add(at + "rl", "a phase of kind rl needs its table [phases.rl]");
    return;
  }
  const ParallelConfig& parallel = recipe.parallel;
  if (parallel.tensor * parallel.pipeline * parallel.context * parallel.expert > 1)
    errors.add(at + "kind",
               "rl samples on each rank with a whole model: tensor, pipeline, context and expert must be 1");
  if (parallel.shard == ShardLevel::full)
    errors.add("parallel.shard", "rl samples on each rank with a whole model: none or optimizer");
  if (recipe.model.moe.sees_future_tokens())
    errors.add("model.moe.selection", "expert_choice cannot decode token by token, which rl needs");
  if (p.sequence <= p.rl->max_tokens)
    errors.add(at + "sequence", "a row holds a prompt and a reply of up to {} tokens, found {}",
               p.rl->max_tokens, p.sequence);
  if (p.steps % p.rl->updates_per_batch != 0)
    errors.add(at + "steps", "must be a multiple of rl.updates_per_batch = {}, found {}",
               p.rl->updates_per_batch, p.steps);
}

PolicyLoss policy_loss_of(const RlLossConfig& c) {
  return {.kind = c.kind,
          .clip_low = c.clip_low,
          .clip_high = c.clip_high,
          .dual_clip = c.dual_clip,
          .cispo_cap = c.cispo_cap,
          .delta = c.delta,
          .ratio_cap = c.ratio_cap};
}

}  // namespace

PhaseKind rl_kind() {
  PhaseKind kind;
  kind.name = "rl";
  kind.validate = validate_rl;
  kind.objective = [](const PhaseConfig& phase) {
    return policy_objective(policy_loss_of(phase.rl->loss), phase.rl->updates_per_batch == 1);
  };
  kind.source = [](const SourceContext& context) { return std::make_unique<RlSource>(context); };
  kind.rows = [](const PhaseConfig& phase) {  // where every reply has its full length
    const int64_t replies = phase.rl->prompts * phase.rl->samples;
    const int64_t each =
        std::max<int64_t>(1, phase.sequence / (phase.rl->max_tokens + phase.rl->max_tokens / 4));
    return (replies + each - 1) / each;
  };
  kind.watches_loss = false;
  return kind;
}

}  // namespace ingot
