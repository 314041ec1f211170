// The held-out pairs of a phase of kind "preference": the same loss and rewards as in training, without
// gradients.
#pragma once
#include <functional>
#include <vector>

#include "data/sampler.h"
#include "post/preference/preference_source.h"

namespace ingot {

class HeldOutPairs {
 public:
  /// The validation splits of the sources that the phase reads.
  explicit HeldOutPairs(const SourceContext& context);
  /// Adds the reference's log-probabilities of all of them, from the model as it is, to `reference`.
  void add_reference(ReferenceLogprobs& reference) const;
  /// val/<source>/preference_loss, accuracy and margin, of all pairs or of about evaluation.max_tokens
  /// tokens. KTO's baseline is 0. `reference`: nullptr where the loss has none. `stops`: as BatchSource's.
  bool measure(const ReferenceLogprobs* reference, bool complete, MetricRow& row,
               const std::function<bool()>& stops) const;

 private:
  struct Source {
    std::string name;
    int32_t key = 0;  ///< of its documents among the reference's
    data::Sampler rows;
  };
  /// Rows [first, ...) of a source, as many as there are data ranks; the last ones may begin anew.
  data::Batch batch(const Source& source, int64_t first) const;
  SourceContext context_;
  std::vector<Source> sources_;
};

}  // namespace ingot
