// See rank_groups.h.
#include "parallel/rank_groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace ingot {
namespace {

constexpr const char *kContext = "context", *kExpert = "expert", *kAcrossNodes = "expert across nodes",
                     *kInsideNode = "expert inside a node";

}  // namespace

int wait_length(const std::string& group) {
  if (group == kExpert || group == kAcrossNodes) return 2;
  return group == kInsideNode || group.starts_with(kContext) ? 1 : 0;
}

RankGroups::RankGroups(const Grid& grid, int rank, const GroupMaker& make, const RankOptions& options)
    : grid_(grid),
      rank_(rank),
      options_(options),
      batch_rank_(grid.index(GridAxis::dp, rank)),
      batch_ranks_(grid.size(GridAxis::dp)) {
  const bool same_rows = grid.size(GridAxis::tp) > 1 && !options.sequence_parallel;
  if (same_rows && grid.size(GridAxis::etp) != grid.size(GridAxis::tp))
    throw Error(fmt::format("grid {}: the ranks of an expert group must hold different tokens", grid.str()),
                "leave etp as tp, or turn sequence parallelism on");
  const auto group = [&](const char* name, std::initializer_list<GridAxis> axes) {
    return make(name, grid.group(axes, rank));
  };
  std::vector<int> all(static_cast<size_t>(grid.ranks()));
  std::iota(all.begin(), all.end(), 0);
  world_ = make("world", all);
  data_ = group("data", {GridAxis::dp, GridAxis::cp});
  tokens_ = options.sequence_parallel ? group("tokens", {GridAxis::dp, GridAxis::cp, GridAxis::tp})
                                      : group("tokens", {GridAxis::dp, GridAxis::cp});
  context_ = group(kContext, {GridAxis::cp});
  make_context_groups(make);
  tensor_ = group("tensor", {GridAxis::tp});
  const std::vector<int> expert_ranks =
      same_rows ? grid.group({GridAxis::ep}, rank) : grid.group({GridAxis::ep, GridAxis::etp}, rank);
  expert_ = make(kExpert, expert_ranks);
  if (options.dispatch == DispatchKind::hierarchical) make_node_groups(expert_ranks, make);
  expert_tensor_ = same_rows ? group("expert tensor", {}) : group("expert tensor", {GridAxis::etp});
  expert_data_ = group("expert data", {GridAxis::edp});
  placement_ = {tensor_->size(), tensor_->rank(), grid.size(GridAxis::ep), grid.index(GridAxis::ep, rank)};
  placement_.sequence_parallel = options.sequence_parallel && tensor_->size() > 1;
  make_shard_groups(make);
  if (same_rows) return;
  placement_.expert_tensor_size = grid.size(GridAxis::etp);
  placement_.expert_tensor_rank = grid.index(GridAxis::etp, rank);
}

Communicator* RankGroups::tensor_group(ShardAxis axis) const {
  Communicator* group = axis == ShardAxis::tensor          ? tensor_.get()
                        : axis == ShardAxis::expert_tensor ? expert_tensor_.get()
                                                           : nullptr;
  return group != nullptr && group->size() > 1 ? group : nullptr;
}

void RankGroups::make_context_groups(const GroupMaker& make) {
  const int all = context_->size(),
            size = options_.context == ContextForm::heads ? all : options_.context_inner;
  if (size < 1 || all % size != 0)
    throw Error(
        fmt::format("{} context ranks do not divide into groups of {} that exchange heads", all, size),
        "choose a number that divides the context ranks");
  const std::vector<int> members = grid_.group({GridAxis::cp}, rank_);
  std::vector<int> inner, outer;
  for (int i = 0; i < all; ++i) {
    if (i / size == context_->rank() / size) inner.push_back(members[static_cast<size_t>(i)]);
    if (i % size == context_->rank() % size) outer.push_back(members[static_cast<size_t>(i)]);
  }
  context_inner_ = make(fmt::format("{} inner", kContext), inner);
  context_outer_ = make(fmt::format("{} outer", kContext), outer);
}

void RankGroups::make_node_groups(const std::vector<int>& expert_ranks, const GroupMaker& make) {
  if (options_.node_ranks <= 0)
    throw Error("a hierarchical dispatch must know which ranks share a node",
                "set the number of ranks of a node");
  std::map<int, std::vector<int>> nodes;
  for (const int r : expert_ranks) nodes[r / options_.node_ranks].push_back(r);
  const std::vector<int>& mine = nodes.at(rank_ / options_.node_ranks);
  const auto position = static_cast<size_t>(std::find(mine.begin(), mine.end(), rank_) - mine.begin());
  std::vector<int> across;
  for (const auto& [node, ranks] : nodes) {
    if (const size_t first = nodes.begin()->second.size(); ranks.size() != first)
      throw Error(
          fmt::format(
              "grid {} on nodes of {} ranks: an expert group has {} ranks on one node and {} on another",
              grid_.str(), options_.node_ranks, first, ranks.size()),
          "choose expert groups that have equally many ranks on each node, or another form of dispatch");
    if (position < ranks.size()) across.push_back(ranks[position]);
  }
  expert_across_ = make(kAcrossNodes, across);
  expert_inside_ = make(kInsideNode, mine);
}

void RankGroups::make_shard_groups(const GroupMaker& make) {
  const ShardOptions& o = options_.shards;
  if (o.level == ShardLevel::none) {
    shard_group_ = self_communicator("shard"), replica_group_ = self_communicator("replicas");
    expert_shard_group_ = self_communicator("expert shard"),
    expert_replica_group_ = self_communicator("expert replicas");
  } else {
    const int data = data_->size(), ranks = o.ranks > 0 ? o.ranks : data;
    if (data % ranks != 0)
      throw Error(fmt::format("{} data ranks do not divide into shard groups of {}", data, ranks),
                  "choose a number of ranks that divides the data ranks, or 0 for all of them");
    const auto shard_group_of = [&](int r) {
      return (grid_.index(GridAxis::dp, r) * grid_.size(GridAxis::cp) + grid_.index(GridAxis::cp, r)) / ranks;
    };
    // The holders of the same parameters form shard groups; the position of a rank in its own says which
    // shard it has.
    const auto divide = [&](const std::vector<int>& holders, const std::string& name) {
      std::map<int, std::vector<int>> groups;
      for (const int r : holders) groups[shard_group_of(r)].push_back(r);
      const std::vector<int>& mine = groups.at(shard_group_of(rank_));
      const auto shard = static_cast<size_t>(std::find(mine.begin(), mine.end(), rank_) - mine.begin());
      std::vector<int> replicas;
      for (const auto& [group, members] : groups) replicas.push_back(members.at(shard));
      return std::pair(make(name + "shard", mine), make(name + "replicas", replicas));
    };
    std::tie(shard_group_, replica_group_) = divide(grid_.group({GridAxis::dp, GridAxis::cp}, rank_), "");
    std::tie(expert_shard_group_, expert_replica_group_) =
        divide(grid_.group({GridAxis::edp}, rank_), "expert ");
  }
  placement_.sharding = {shard_group_->size(),
                         shard_group_->rank(),
                         expert_shard_group_->size(),
                         expert_shard_group_->rank(),
                         o.buckets,
                         o.bucket_bytes,
                         o.whole_tensors,
                         o.level};
}

}  // namespace ingot
