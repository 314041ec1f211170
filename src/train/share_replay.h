// Spot replay: in every health.replay_every-th step each rank makes the gradient of another data rank's share
// of the batch again, on its own machine, and all digests are compared before any weight changes. It finds
// what no vote on copies can: a rank that computes wrongly adds the same wrong gradient to all copies.
//
// At distance k a rank makes the share of the data rank that is k groups of experts ahead, whose ranks have
// the same experts as this one's group. Where all data ranks are one group, it makes its own share again, and
// finds what does not repeat.
#pragma once
#include <optional>
#include <vector>

#include "train/digest_lines.h"
#include "train/engine.h"

namespace ingot {

class ShareReplay {
 public:
  /// Called by all ranks. `engine` must outlive this. Off, with a warning, where ranks have other kernels.
  explicit ShareReplay(TrainEngine& engine);
  bool due(int64_t step) const { return every_ > 0 && step % every_ == 0; }
  /// Before the passes of the step, whose gradient this overwrites.
  void make(const data::Batch& batch, const StepOptions& options);
  /// After them, by all ranks, with the digest of this rank's own gradient. Where digests differ and a third
  /// rank can tell, the shares are made once more, and the step's gradient is gone.
  std::optional<Disagreement> compare(uint64_t own, const data::Batch& batch, const StepOptions& options);

 private:
  uint64_t digest(int64_t distance, const data::Batch& batch, const StepOptions& options) const;
  /// Adds what all ranks made of the shares at a distance.
  void gather(uint64_t mine, int64_t distance, std::vector<ShareDigest>& shares) const;

  TrainEngine& engine_;
  int64_t every_;
  int64_t group_ = 1;    ///< data ranks of a group of experts
  int64_t holders_ = 1;  ///< such groups
  uint64_t made_ = 0;
};

}  // namespace ingot
