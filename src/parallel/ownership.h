// Which of the ranks that hold the same elements owns them: counts them in norms and saves them. A pure
// function of grid and parameter table, so every rank knows the whole map.
#pragma once
#include <vector>

#include "nn/parameter.h"
#include "parallel/pipeline_groups.h"
#include "parallel/shards.h"

namespace ingot {

/// Elements [begin, end) of a rank's local tensor.
struct ElementRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  int64_t count() const { return empty() ? 0 : end - begin; }
};

class Ownership {
 public:
  /// Whole local tensors, assigned so that the ranks that hold the same ones own about equally many elements.
  Ownership(const RankGroups& groups, const PipelineGroups& pipe, const ParameterTable& table);
  /// The ranges of a sharded optimizer: each rank owns what it updates.
  Ownership(const RankGroups& groups, const PipelineGroups& pipe, const ParameterTable& table,
            const Shards& shards);

  /// What this rank owns of parameter i; the owned ranges of all ranks tile every parameter.
  ElementRange owned(int i) const { return owned_[static_cast<size_t>(i)]; }

 private:
  std::vector<ElementRange> owned_;
};

}  // namespace ingot
