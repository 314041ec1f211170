// The batches of a phase of kind "own_preference": pairs of the model's own replies.
//
// Where the phase begins the model is asked problems of environments, several times each; the best reply
// against the worst is a pair. The reference of the loss is the model of that moment, and the
// log-probabilities that sampling records are the bits that its forward pass computes, so no second pass
// makes them. The pairs are kept in the run's folder (reference/phase-<n>.pairs.json), whose hash is part of
// a checkpoint: a resumed run trains on the same ones. Data ranks share the sampling; all know all pairs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "post/rl/rollout.h"
#include "train/batch_source.h"

namespace ingot {

/// The pair of a judged group: its reply of the largest reward, then that of the smallest. Of equal rewards
/// the reply whose tokens are likeliest is the better one: a model that learns it becomes surer of what it
/// knows, and loses less where tokens are drawn. Replies that were cut, or that the verifier failed on, are
/// in no pair. Empty where all others have one reward.
std::vector<Rollout> pair_of(const RolloutGroup& group);

class OwnPairsSource final : public BatchSource {
 public:
  explicit OwnPairsSource(const SourceContext& context) : context_(context) {}
  data::Batch next(int64_t step) override;
  void observe(const StepOutcome& outcome, MetricRow& row) override;
  std::string state() const override;
  void restore(const std::string& state, const std::string& where) override;

 private:
  const OwnPairsConfig& config() const { return *context_.config().own_pairs; }
  bool has_reference() const;
  std::string path() const;
  void make();
  void keep();
  void read();

  const SourceContext context_;
  std::vector<RolloutGroup> pairs_;  ///< each with two rollouts: chosen, rejected
  std::string hash_;                 ///< of the file with them
  std::string restored_where_;       ///< the checkpoint that named the hash
};

}  // namespace ingot
