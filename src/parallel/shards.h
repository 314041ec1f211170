// ZeRO sharding of weights, gradients and optimizer state over the shard group (rank_groups.h).
//
// Every bucket of the flat layout is divided into equal ranges regardless of tensors, so a rank has whole
// tensors and at most one partial tensor at each end of each bucket; with FlatSharding::whole_tensors
// matrices are never divided. Gradients are reduced into each rank's shard (gradient_reducer.h), the rank
// updates it, and the updated weights are all-gathered: after the step (ZeRO-1), or whenever they are read
// (weight_gatherer.h). Source: [ZeRO] §5.
#pragma once
#include <vector>

#include "parallel/rank_groups.h"
#include "parallel/tensor_shards.h"

namespace ingot {

class Shards {
 public:
  /// Throws Error where parameters are frozen.
  Shards(const RankGroups& groups, const WeightSet& weights);

  /// The element ranges of a rank's local tensor of parameter i.
  const TensorShards& of(int i) const { return shards_[static_cast<size_t>(i)]; }
  /// All-gathers the compute values of all buckets.
  void gather(WeightSet& weights) const;

 private:
  const RankGroups& groups_;
  std::vector<TensorShards> shards_;
};

/// Starts to all-gather the compute values of one bucket; call WeightSet::complete_gather() after waiting.
Pending gather_bucket(const RankGroups& groups, const WeightSet& weights, int bucket);

}  // namespace ingot
