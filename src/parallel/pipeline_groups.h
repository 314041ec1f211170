// One rank's position in a pipeline: the layer groups that it holds, the ranks that it passes values to, and
// the parameters that other stages hold too (tied matrices, value embeddings).
#pragma once
#include "comm/grid.h"
#include "nn/weights.h"
#include "parallel/pipeline_layout.h"
#include "parallel/rank_groups.h"

namespace ingot {

class PipelineGroups {
 public:
  /// Throws Error for a layout that is not made for as many ranks as the grid's pipelines have.
  PipelineGroups(const Grid& grid, int rank, const GroupMaker& make, PipelineLayout layout,
                 const ParameterTable& table);

  const PipelineLayout& layout() const { return layout_; }
  int stage() const { return forward_->rank(); }
  int stages() const { return forward_->size(); }
  /// The placement on the other axes, with the layer groups of this rank.
  Placement placement(Placement other_axes) const;
  Communicator& forward() const { return *forward_; }    ///< stream values, to the next stage
  Communicator& backward() const { return *backward_; }  ///< their cotangents, to the previous stage

  /// Whether this stage owns a parameter: one of the stages that hold it counts it in norms and saves it.
  bool owns(const ParameterSpec& spec) const;
  /// Whether other stages hold this parameter too.
  bool held_by_other_stages(int parameter) const;
  /// Chunks of this rank whose tapes use a parameter.
  int chunks_with(const ParameterSpec& spec) const;
  /// Whether the tapes of a chunk of this rank use a parameter.
  bool uses(int chunk, const ParameterSpec& spec) const;
  /// Sums the gradients of parameters that several stages hold over these stages, so that all make the same
  /// update and their copies stay equal bit for bit. Call before data ranks reduce gradients, after which a
  /// rank may have a shard only; under ShardLevel::full after, since a rank never has more (copies are
  /// sharded alike, nn/flat_layout.h).
  void sum_over_stages(GradientBuffer& gradients) const;

 private:
  PipelineLayout layout_;
  std::unique_ptr<Communicator> forward_, backward_;
  std::vector<int64_t> layer_groups_;
  /// A parameter, and the stages that hold it.
  std::vector<std::pair<int, std::unique_ptr<Communicator>>> held_by_several_;
};

}  // namespace ingot
