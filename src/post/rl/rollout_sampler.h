// Asks a policy and judges what it replies: prompts through the chat template, groups as forks of one prefill
// in a continuous-batching engine on the trainer's own weights, replies parsed and judged by their
// environments. What comes out is a function of the groups' problems and keys, the weights and the options,
// whatever the number of threads or the engine's memory. Not thread-safe.
#pragma once
#include <vector>

#include "chat/chat_template.h"
#include "models/model.h"
#include "post/rl/rollout.h"
#include "tokenizer/tokenizer.h"
#include "train/post_recipe.h"

namespace ingot {

struct RolloutOptions {
  int64_t samples = 1;
  int64_t max_tokens = 128;                          ///< of a reply
  int64_t thinking_tokens = -1, answer_tokens = -1;  ///< budgets; -1: none
  SamplingOptions sampling = {};                     ///< its seed is of all replies
  bool routes = false;                               ///< records the experts of every row
  int64_t positions = 0;                             ///< of prompt and reply in training: more is an Error
  int64_t cache_bytes = int64_t{512} << 20;
  double repetition = 0;  ///< threshold of the canary; 0: off
  int64_t repetition_chunk = 1024;
};

/// What the template's switch says for problem `ordinal` of a phase; nothing: as the template does unasked.
std::optional<bool> thinking_switch(RolloutThinking how, int64_t ordinal);

/// What asking took on this rank.
struct RolloutCost {
  double sample_seconds = 0, judge_seconds = 0;
};

/// Notes how far the reply compresses (canary.h); below `threshold` its reward is 0. threshold 0: nothing.
void zero_repetition(Rollout& rollout, double threshold, int64_t chunk);

class RolloutSampler {
 public:
  /// All must outlive this. Error: the template's marks are no tokens of the tokenizer, or a budget for
  /// reasoning is given that the template does not have.
  RolloutSampler(const Model& model, const Tokenizer& tokenizer, const chat::ChatTemplate& chat_template,
                 const RolloutOptions& options);

  /// Renders a group's prompt. thinking: what its switch says, where the template has one. Error where prompt
  /// and reply do not fit; it names the problem.
  void ask(RolloutGroup& group, std::optional<bool> thinking) const;
  /// Another prompt for a group that was asked: its ids, and whether they end inside the reasoning. Error as
  /// ask()'s.
  void set_prompt(RolloutGroup& group, std::vector<int32_t> ids, bool ends_in_thinking) const;
  /// Ids that end a reply.
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }
  /// Draws and judges `samples` replies to each prompt. Rewards are the environments' own, 0 where the canary
  /// found repetition. Adds to `cost`.
  void sample(std::vector<RolloutGroup>& groups, RolloutCost& cost) const;

 private:
  void draw(std::vector<RolloutGroup>& groups) const;
  void judge(RolloutGroup& group, Rollout& rollout) const;

  const Model& model_;
  const Tokenizer& tokenizer_;
  const chat::ChatTemplate& template_;
  RolloutOptions options_;
  chat::ReplyFormat format_;
  std::vector<int32_t> stop_ids_;
};

}  // namespace ingot
