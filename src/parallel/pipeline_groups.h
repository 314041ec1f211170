// One rank's place in a pipeline: which parts of the model it holds, whom it passes values to, and which
// parameters other stages hold as well (tied matrices, value embeddings).
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
  /// A rank's place on the other axes, and the parts that this one holds.
  Placement placement(Placement other_axes) const;
  Communicator& forward() const { return *forward_; }    ///< stream values, to the next stage
  Communicator& backward() const { return *backward_; }  ///< their cotangents, to the one before

  /// Of several stages that hold a parameter, one owns it: it counts in norms and is saved there.
  bool owns(const ParameterSpec& spec) const;
  /// Whether other stages hold a parameter of this one too.
  bool shares(int parameter) const;
  /// Chunks of this rank whose tapes use a parameter.
  int chunks_with(const ParameterSpec& spec) const;
  bool uses(int chunk, const ParameterSpec& spec) const;
  /// Sums the gradients of what several stages hold over them, so that all make the same update and their
  /// copies stay equal bit for bit. Before ranks reduce them, after which a share of a sum is all that a rank may have;
  /// under ShardLevel::full after, since a share is all that it ever has (nn/flat_layout.h cuts copies alike).
  void sum_shared(GradientBuffer& gradients) const;

 private:
  PipelineLayout layout_;
  std::unique_ptr<Communicator> forward_, backward_;
  std::vector<int64_t> parts_;
  std::vector<std::pair<int, std::unique_ptr<Communicator>>> shared_;  ///< parameter, the stages that hold it
};

}  // namespace ingot
