// Forward passes over cached sequences without an engine: what tests of models compare. Not thread-safe.
#pragma once
#include <span>
#include <vector>

#include "infer/engine.h"
#include "models/model.h"

namespace ingot::test {

class CachedSequences {
 public:
  /// `model` must outlive it.
  explicit CachedSequences(const Model& model, int64_t pages = 1000,
                           LatentDecoding latents = LatentDecoding::materialised,
                           DeviceKind device = DeviceKind::cpu);

  SequenceState create() { return store_.create(); }
  /// Appends tokens to sequences, one list each, in one forward pass. Returns the logits after the last token
  /// of each.
  std::vector<std::vector<float>> extend(std::span<SequenceState* const> sequences,
                                         std::span<const std::span<const int32_t>> tokens);
  /// Appends tokens to a sequence and returns the log-probability of targets[i] after tokens[i].
  std::vector<float> score(SequenceState& sequence, std::span<const int32_t> tokens,
                           std::span<const int32_t> targets);

 private:
  struct Call;
  const Model& model_;
  LatentDecoding latents_;
  SequenceStore store_;
  const DeviceKind device_;
  HeapArena arena_;
};

}  // namespace ingot::test
