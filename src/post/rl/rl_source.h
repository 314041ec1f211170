// The batches of a phase of kind "rl": the policy is asked, replies are judged, and what they teach is packed
// into a batch. Synchronous: the engine that draws runs on the weights that the update starts from, so
// recorded log-probabilities are those that training computes, and the replies of a step are a function of
// (weights, recipe, curriculum, step). Data ranks share the prompts, and all know all replies. Other ranks
// are refused: each needs a whole model.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "post/rl/aggregation_prompt.h"
#include "post/rl/curriculum.h"
#include "post/rl/policy_batch.h"
#include "post/rl/problem_pool.h"
#include "post/rl/reference_policy.h"
#include "post/rl/rollout_sampler.h"
#include "post/rl/text_replay.h"
#include "train/batch_source.h"

namespace ingot {

/// How the replies of a batch came about, for metrics.
struct RolloutTally {
  int64_t groups = 0, with_signal = 0;  ///< sampled
  int64_t rounds = 0;                   ///< of sampling
  RolloutCost cost;
  std::vector<RolloutGroup> left_out;  ///< groups that the batch does not have: of equal rewards
  double fill = 0;                     ///< share of the positions in rows of replies that they take
};

class RlSource final : public BatchSource {
 public:
  explicit RlSource(const SourceContext& context);
  ~RlSource() override;
  data::Batch next(int64_t step) override;
  void observe(const StepOutcome& outcome, MetricRow& row) override;
  std::string state() const override;
  void restore(const std::string& state, const std::string& where) override;

 private:
  /// A file of JSON lines of the leading rank, open from its first line on.
  struct StepLines {
    std::unique_ptr<WritableFile> file;
    /// Lines of the update that follows `step` updates.
    void append(FileSystem& fs, const std::string& path, int64_t step, const std::string& text,
                const std::function<int64_t(std::string_view line, const std::string& where)>& step_of);
  };
  const RlConfig& config() const { return *context_.config().rl; }
  uint64_t seed() const { return static_cast<uint64_t>(context_.recipe().run.seed); }
  /// Adds what the reference says of the batch.
  void refer(int64_t step, data::Batch& batch);
  /// Which update on its batch the step makes, from 0.
  int64_t update_of(int64_t step) const;
  /// Draws, judges and reports groups until the batch is full or the rounds are spent.
  void collect(int64_t step);
  /// Problem `number` of a draw with its prompt; `key` names its random numbers within the phase.
  RolloutGroup new_group(const Curriculum::Draw& draw, uint64_t number, const std::string& key,
                         std::optional<bool> thinking) const;
  /// Shows candidates in the share of the prompts that is to have them; `number`: of the first in the run.
  void show_candidates(std::vector<RolloutGroup>& groups, int64_t number);
  RolloutGroup next_group(int64_t step, int64_t ordinal, const Random& random);
  void add_bonuses(RolloutGroup& group, int64_t step) const;
  void calibrate(int64_t step);
  /// Tries the pool's problems and keeps those of the filter.
  void fill_pool();
  void require_sound_verifiers() const;
  [[noreturn]] void fail_without_signal() const;
  /// Those of the batch, then those that were left out.
  std::vector<const RolloutGroup*> sampled_groups() const;
  void write_metrics(MetricRow& row) const;
  void write_lines();

  const SourceContext context_;
  const chat::ChatTemplate template_;
  std::vector<environments::EnvironmentPointer> environments_;
  Curriculum curriculum_;
  ProblemPool pool_;
  RolloutSampler sampler_;
  AggregationPrompts aggregation_;
  std::optional<const TextReplay> text_;
  StepLines rollouts_, counts_;
  bool calibrated_ = false;
  int64_t judged_ = 0, failed_ = 0;   ///< verdicts of the phase, and those that its verifiers failed to give
  int64_t step_ = -1;                 ///< that the last batch was made for
  std::vector<RolloutGroup> groups_;  ///< of the batch
  RolloutTally tally_;
  std::unique_ptr<const ReferencePolicy> reference_;  ///< from the first step that needs it on
  std::vector<float> reference_logprobs_;             ///< of the batch; empty: not computed yet
};

}  // namespace ingot
