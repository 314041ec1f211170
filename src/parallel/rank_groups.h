// One rank's place and groups, and what its gradients need before an optimizer may use them (docs/parallel.md has the
// table of rules; it is stated here in code once).
#pragma once
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/grid.h"
#include "nn/context.h"

namespace ingot {

/// Makes this rank's end of a named group over world ranks: World::group.
using GroupMaker =
    std::function<std::unique_ptr<Communicator>(std::string name, const std::vector<int>& members)>;

/// What the ranks that hold the same parameters share out.
struct ShardOptions {
  ShardLevel level = ShardLevel::none;
  int ranks = 0;  ///< data ranks that share one copy of all (hybrid sharding); 0: all data ranks
  FlatBuckets units = FlatBuckets::group;
  int64_t bucket_bytes = 0;
  bool whole_tensors = false;  ///< see FlatSharing
};

/// What the shape of the grid leaves open.
struct RankOptions {
  bool sequence_parallel = false;  ///< tensor ranks share out the rows between their products
  DispatchKind dispatch = DispatchKind::all_to_all;
  ReceiveBound receive = {};
  bool bf16_dispatch = false;  ///< see Context
  int node_ranks =
      0;  ///< of the world's ranks this many in a row share a node; needed for a hierarchical dispatch
  ContextForm context = ContextForm::heads;
  int context_inner = 1;  ///< in the other forms: neighbours that exchange heads
  ShardOptions shards = {};
};

class RankGroups {
 public:
  /// The groups of one pipeline stage. Where tensor ranks see the same rows, etp must be tp (else Error), and then each of
  /// them computes its experts whole; else etp ranks share the width of each expert. Error for a hierarchical dispatch over
  /// expert groups that have not equally many ranks on each of their nodes, and for context ranks that do not divide into
  /// groups of neighbours.
  RankGroups(const Grid& grid, int rank, const GroupMaker& make, const RankOptions& options = {});

  const Grid& grid() const { return grid_; }
  const Placement& placement() const { return placement_; }
  int rank() const { return rank_; }  ///< in the world
  bool leads() const { return rank_ == 0; }
  /// Tensor ranks see the same rows outside of products, so each computes its experts whole.
  bool same_rows() const { return tensor_->size() > 1 && !options_.sequence_parallel; }
  int batch_rank() const { return batch_rank_; }  ///< which share of the batch's sequences
  int batch_ranks() const { return batch_ranks_; }
  const RankOptions& options() const { return options_; }
  Communicator& world() const { return *world_; }
  Communicator& data() const { return *data_; }  ///< ranks with other targets: what sums of losses go over
  Communicator& tokens() const {
    return *tokens_;
  }  ///< ranks whose routers see other tokens: what sums of counts go over
  Communicator& tensor() const { return *tensor_; }
  Communicator& context() const { return *context_; }  ///< ranks that share each sequence
  Communicator& context_inner() const {
    return *context_inner_;
  }                                                  ///< see Context; in the form heads: all of them
  Communicator& expert() const { return *expert_; }  ///< see Context::expert
  /// Of a hierarchical dispatch only: see Context.
  Communicator& expert_across() const { return *expert_across_; }
  Communicator& expert_inside() const { return *expert_inside_; }
  Communicator& expert_data() const { return *expert_data_; }  ///< copies of the same experts
  /// The ranks that have slices of one matrix which is cut over an axis; nullptr: this rank has whole matrices of it.
  Communicator* slicers(ShardAxis axis) const;
  /// The ranks that hold the same parameters of a group of the flat layout.
  Communicator& replicas(FlatGroup group) const {
    return group == FlatGroup::experts ? *expert_data_ : *data_;
  }
  /// Those of them that share one copy out, and those of the other copies that have the same share as this rank.
  Communicator& sharers(FlatGroup group) const {
    return group == FlatGroup::experts ? *expert_sharers_ : *sharers_;
  }
  Communicator& share_copies(FlatGroup group) const {
    return group == FlatGroup::experts ? *expert_copies_ : *copies_;
  }
  /// Lets a forward pass communicate. Context ranks also need Context::context_rows, which follow from the batch.
  void join(Context& c) const {
    c.tensor = tensor_.get();
    c.expert = expert_.get();
    c.expert_across = expert_across_.get();
    c.expert_inside = expert_inside_.get();
    c.context = context_.get();
    c.context_inner = context_inner_.get();
    c.context_outer = context_outer_.get();
    c.context_form = options_.context;
    c.sequence_parallel = options_.sequence_parallel;
    c.dispatch = options_.dispatch;
    c.receive = options_.receive;
    c.bf16_dispatch = options_.bf16_dispatch;
  }

 private:
  void divide_context(const GroupMaker& make);
  void divide_into_nodes(const std::vector<int>& expert_ranks, const GroupMaker& make);
  void make_shares(const GroupMaker& make);

  Grid grid_;
  int rank_;
  RankOptions options_;
  int batch_rank_, batch_ranks_;
  Placement placement_;
  std::unique_ptr<Communicator> world_, data_, tokens_, tensor_, context_, expert_, expert_tensor_,
      expert_data_;
  std::unique_ptr<Communicator> context_inner_, context_outer_, expert_across_, expert_inside_;
  std::unique_ptr<Communicator> sharers_, copies_, expert_sharers_, expert_copies_;
};

/// Sum of squares of the whole model's reduced gradient, the same on all ranks: each element counts once.
double gradient_square_sum(const RankGroups& groups, const ParameterTable& table,
                           const GradientBuffer& gradients);

}  // namespace ingot
