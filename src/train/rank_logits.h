// The next token's logits of a model that ranks hold in parts: cut over tensor ranks, over the stages of a pipeline, or both.
// Nothing is cached: every call runs all tokens so far through all ranks, which samples during a run can afford.
#pragma once
#include <span>
#include <vector>

#include "train/step.h"

namespace ingot {

class RankLogits {
 public:
  /// All must outlive this.
  RankLogits(const Model& model, const StepRanks& ranks) : model_(model), ranks_(ranks) {}
  /// Appends tokens; the logits behind the last one, [rows of the head] in fp32, the same on all ranks. The ranks of a
  /// tensor group and of a pipeline call alike.
  std::vector<float> after(std::span<const int32_t> tokens);

 private:
  /// The rows of the head that tensor ranks have, put together.
  void gather(std::vector<float>& logits) const;
  const Model& model_;
  StepRanks ranks_;
  std::vector<int32_t> ids_;
  HeapArena arena_;
};

}  // namespace ingot
