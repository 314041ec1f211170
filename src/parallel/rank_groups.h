// The communication groups of one rank on the grid (docs/parallel.md has the picture and the table of rules).
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

/// How data ranks shard what they would otherwise replicate (ZeRO, FSDP).
struct ShardOptions {
  ShardLevel level = ShardLevel::none;
  /// Ranks of a shard group (hybrid sharding); 0: all data ranks.
  int ranks = 0;
  FlatBuckets buckets = FlatBuckets::tensor_group;
  int64_t bucket_bytes = 0;
  bool whole_tensors = false;  ///< see FlatSharding
};

/// What a dry run supposes of the data, which it does not see.
struct SupposedData {
  double imbalance = 1;  ///< times the rows of an even routing come to the experts of a rank
  /// Of the document that a token lies in, the mean over tokens; 0: each sequence is one document.
  int64_t document_tokens = 0;
};

/// How long the exchanges of a group of RankGroups take, by its name and compared with those of others: 2 for
/// experts, 1 for experts inside a node and for context ranks, else 0.
int wait_length(const std::string& group);

/// What the shape of the grid leaves open.
struct RankOptions {
  /// Tensor ranks shard the rows between their products.
  bool sequence_parallel = false;
  DispatchKind dispatch = DispatchKind::all_to_all;
  ReceiveCapacity receive = {};
  SupposedData supposed = {};
  bool bf16_dispatch = false;  ///< see Context
  /// Consecutive world ranks that share a node; needed for a hierarchical dispatch.
  int node_ranks = 0;
  ContextForm context = ContextForm::heads;
  /// ContextForm::gather and ring: neighbours that exchange heads.
  int context_inner = 1;
  ShardOptions shards = {};
};

/// The groups of one pipeline stage. Throws Error where
/// - tensor ranks see the same rows but etp is not tp. (With the same rows each tensor rank computes its
///   experts whole; else etp ranks shard the width of each expert.)
/// - a hierarchical dispatch has expert groups without equally many ranks on each of their nodes.
/// - context or data ranks do not divide into the groups that the options ask for.
class RankGroups {
 public:
  RankGroups(const Grid& grid, int rank, const GroupMaker& make, const RankOptions& options = {});

  const Grid& grid() const { return grid_; }
  const Placement& placement() const { return placement_; }
  int rank() const { return rank_; }  ///< in the world
  bool leads() const { return rank_ == 0; }
  /// Tensor ranks see the same rows outside of products, so each computes its experts whole.
  bool same_rows() const { return tensor_->size() > 1 && !options_.sequence_parallel; }
  /// Which shard of the sequences of a batch this rank trains on.
  int batch_rank() const { return batch_rank_; }
  int batch_ranks() const { return batch_ranks_; }
  const RankOptions& options() const { return options_; }

  Communicator& world() const { return *world_; }
  /// Ranks with other targets: losses are summed over them.
  Communicator& data() const { return *data_; }
  /// Ranks whose routers see other tokens: expert counts are summed over them.
  Communicator& tokens() const { return *tokens_; }
  Communicator& tensor() const { return *tensor_; }
  /// Ranks that have chunks of the same sequences.
  Communicator& context() const { return *context_; }
  /// The ranks of context() that exchange heads; in ContextForm::heads all of them.
  Communicator& context_inner() const { return *context_inner_; }
  Communicator& expert() const { return *expert_; }  ///< see Context::expert
  /// Of a hierarchical dispatch only: see Context.
  Communicator& expert_across() const { return *expert_across_; }
  Communicator& expert_inside() const { return *expert_inside_; }
  /// Ranks that hold the same experts.
  Communicator& expert_data() const { return *expert_data_; }
  /// The ranks that have shards of one matrix on an axis; nullptr: this rank has whole matrices.
  Communicator* tensor_group(ShardAxis axis) const;
  /// The ranks that hold the same parameters of a tensor group.
  Communicator& data_group(FlatGroup group) const {
    return group == FlatGroup::experts ? *expert_data_ : *data_;
  }
  /// data_group() divided in two dimensions (HSDP): a shard group has one copy of these parameters; the
  /// replica group has the ranks of the other shard groups that have the same shard as this rank.
  Communicator& shard_group(FlatGroup group) const {
    return group == FlatGroup::experts ? *expert_shard_group_ : *shard_group_;
  }
  Communicator& replica_group(FlatGroup group) const {
    return group == FlatGroup::experts ? *expert_replica_group_ : *replica_group_;
  }
  /// Gives a forward pass its groups. Context ranks also need Context::context_rows, which follow from the
  /// batch.
  void join(Context& c) const {
    c.tensor = tensor_.get();
    c.tokens = tokens_.get();
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
    c.imbalance = options_.supposed.imbalance;
    c.bf16_dispatch = options_.bf16_dispatch;
  }

 private:
  void make_context_groups(const GroupMaker& make);
  void make_node_groups(const std::vector<int>& expert_ranks, const GroupMaker& make);
  void make_shard_groups(const GroupMaker& make);

  Grid grid_;
  int rank_;
  RankOptions options_;
  int batch_rank_, batch_ranks_;
  Placement placement_;
  std::unique_ptr<Communicator> world_, data_, tokens_, tensor_, context_, expert_, expert_tensor_,
      expert_data_;
  std::unique_ptr<Communicator> context_inner_, context_outer_, expert_across_, expert_inside_;
  std::unique_ptr<Communicator> shard_group_, replica_group_, expert_shard_group_, expert_replica_group_;
};

}  // namespace ingot
