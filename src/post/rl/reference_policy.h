// The model that a phase began with, beside the one that it trains: what a penalty keeps the policy near to.
#pragma once
#include <vector>

#include "train/batch_source.h"

namespace ingot {

/// A second set of weights. One thread uses it; all ranks make the same calls.
class ReferencePolicy {
 public:
  /// The engine's model as it is now.
  explicit ReferencePolicy(const TrainEngine& engine);
  /// The model of the run's step `begun`: its first weights, or its checkpoint of that step. Error where the
  /// checkpoint is gone.
  ReferencePolicy(const SourceContext& context, int64_t begun);

  /// Of every target of the batch, [B*S], as the forward pass of the phase's step `done` computes them; see
  /// ingot::logprobs().
  std::vector<float> logprobs(const TrainEngine& engine, size_t phase, int64_t done, const data::Batch& batch,
                              float logit_scale) const;

 private:
  std::unique_ptr<Model> model_;
};

}  // namespace ingot
