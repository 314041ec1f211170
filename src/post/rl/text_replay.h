// Text beside replies, so that a policy does not forget it: rows of a step that show windows of the phase's
// sources and are learned by plain cross entropy, as pretraining does.
#pragma once
#include "data/sampler.h"
#include "train/batch_source.h"

namespace ingot {

/// Appends the rows of `text` to a policy's batch (policy_batch.h). Both have rows of one length. The loss
/// grows by `weight` times the mean of -log p over the text's targets: in columns, each has the advantage 1
/// and a weight that makes up for the batch's divisor, which stays as it is. No sampler drew them, so
/// `recorded` is NaN. Nothing where no target of the text is in the loss.
void append_text(const data::Batch& text, double weight, data::Batch& batch);

/// The text of each step: windows of the sources that the phase's `weights` name, a function of recipe and
/// step alone. Thread-safe.
class TextReplay {
 public:
  /// Of a phase whose rl.replay has rows.
  explicit TextReplay(const SourceContext& context);
  /// Appends the step's rows. `step`: of the run, from 0.
  void append(int64_t step, data::Batch& batch) const;

 private:
  int64_t rows_;
  double weight_;
  data::Sampler sampler_;
};

}  // namespace ingot
