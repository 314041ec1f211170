// ZeRO-1: the ranks that hold the same parameters share out their optimizer state. Flat buffers are cut into equal
// contiguous ranges without respect for tensors, so a rank has whole tensors and at most one part of one at each end of
// each group of the layout (spec zaya1 §3.9). Gradients are reduce-scattered, each rank moves its range, and the moved
// weights are gathered. Dense parameters are shared out over data ranks, experts over the ranks with copies of them.
#pragma once
#include <vector>

#include "parallel/rank_groups.h"
#include "parallel/tensor_shards.h"

namespace ingot {

class Shards {
 public:
  /// Throws Error where parameters are frozen.
  Shards(const RankGroups& groups, const WeightSet& weights);

  /// Which elements of a rank's local tensor of parameter i lie where.
  const TensorShards& of(int i) const { return shards_[static_cast<size_t>(i)]; }
  /// Every rank's range of the sum.
  void reduce(const GradientBuffer& gradients) const;
  /// All ranks' ranges of the masters, and the compute copies from them.
  void gather(WeightSet& weights) const;

 private:
  const RankGroups& groups_;
  std::vector<TensorShards> shards_;
};

}  // namespace ingot
