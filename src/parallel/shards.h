// Of what ranks hold alike, who keeps which part: every unit of the flat layout is cut into equal ranges without respect for
// tensors, so a rank has whole tensors and at most one part of one at each end of each unit (spec zaya1 §3.9); or, with
// FlatSharing::whole_tensors, whole matrices only. Gradients are summed into each rank's share (gradient_reducer.h), it moves
// that, and the moved weights come together again: after the step (ZeRO-1), or whenever they are read (unit_keeper.h).
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
  /// All ranks' shares of the compute values.
  void gather(WeightSet& weights) const;

 private:
  const RankGroups& groups_;
  std::vector<TensorShards> shards_;
};

/// Starts to bring one unit's compute values together; WeightSet::arrived() is next.
Pending gather_unit(const RankGroups& groups, const WeightSet& weights, int unit);

}  // namespace ingot
