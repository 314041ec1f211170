// The batches of a phase of kind "rl": the policy is asked, replies are judged, and what they teach is packed
// into a batch. Synchronous: the engine that draws runs on the weights that the update starts from, so
// recorded log-probabilities are those that training computes, and the replies of a step are a function of
// (weights, recipe, curriculum, step). Data ranks share the prompts, and all know all replies. Other ranks
// are refused: each needs a whole model.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "post/rl/curriculum.h"
#include "post/rl/policy_batch.h"
#include "post/rl/problem_pool.h"
#include "post/rl/rollout_sampler.h"
#include "train/batch_source.h"

namespace ingot {

/// How the replies of a batch came about, for metrics.
struct RolloutTally {
  int64_t groups = 0, with_signal = 0;  ///< sampled
  int64_t rounds = 0;                   ///< of sampling
  RolloutCost cost;
  std::vector<RolloutGroup> left_out;  ///< groups that the batch does not have: of equal rewards
  double fill = 0;                     ///< share of the batch's positions that sequences take
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
  const RlConfig& config() const { return *context_.config().rl; }
  uint64_t seed() const { return static_cast<uint64_t>(context_.recipe().run.seed); }
  /// Which update on its batch the step makes, from 0.
  int64_t update_of(int64_t step) const;
  /// Draws, judges and reports groups until the batch is full or the rounds are spent.
  void collect(int64_t step);
  /// Problem `number` of a draw with its prompt; `key` names its random numbers within the phase.
  RolloutGroup new_group(const Curriculum::Draw& draw, uint64_t number, const std::string& key,
                         std::optional<bool> thinking) const;
  /// What the template's switch says for prompt `ordinal` of a step.
  std::optional<bool> thinking_of(int64_t ordinal) const;
  RolloutGroup next_group(int64_t step, int64_t ordinal, const Random& random);
  /// Draws and judges; data ranks share the groups.
  void sample(const RolloutSampler& sampler, std::vector<RolloutGroup>& groups, RolloutCost& cost) const;
  void add_bonuses(RolloutGroup& group, int64_t step) const;
  void calibrate(int64_t step);
  /// Tries the pool's problems and keeps those of the filter.
  void fill_pool();
  void require_sound_verifiers() const;
  [[noreturn]] void fail_without_signal() const;
  void write_metrics(MetricRow& row) const;
  void write_lines();

  const SourceContext context_;
  const chat::ChatTemplate template_;
  std::vector<environments::EnvironmentPointer> environments_;
  Curriculum curriculum_;
  ProblemPool pool_;
  RolloutSampler sampler_;
  std::unique_ptr<WritableFile> file_;  ///< of the leading rank, from its first line on
  bool calibrated_ = false;
  int64_t judged_ = 0, failed_ = 0;   ///< verdicts of the phase, and those that its verifiers failed to give
  int64_t step_ = -1;                 ///< that the last batch was made for
  std::vector<RolloutGroup> groups_;  ///< of the batch
  RolloutTally tally_;
};

}  // namespace ingot
