// The logits of the next token where several ranks hold the model: tensor ranks, the stages of a pipeline, or
// both. Nothing is cached: every call runs all tokens so far through all ranks, which is fast enough for the
// samples of a run.
#pragma once
#include <span>
#include <vector>

#include "train/step.h"

namespace ingot {

class RankLogits {
 public:
  /// All must outlive this.
  RankLogits(const Model& model, const StepRanks& ranks) : model_(model), ranks_(ranks) {}
  /// Appends tokens and returns the logits after the last one, f32 [rows of the head], the same on all ranks.
  /// All ranks of a tensor group and of a pipeline call with the same tokens.
  std::vector<float> after(std::span<const int32_t> tokens);

 private:
  /// Puts the rows of the head together that tensor ranks hold.
  void gather(std::vector<float>& logits) const;
  const Model& model_;
  StepRanks ranks_;
  std::vector<int32_t> ids_;
  HeapArena arena_{device_of(compute_device())};
};

}  // namespace ingot
