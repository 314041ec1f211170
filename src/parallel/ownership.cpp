// See ownership.h.
#include "parallel/ownership.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace ingot {
namespace {

/// This rank among those that hold the same shard of a parameter.
struct Replica {
  int index, count;
};

Replica replica_of(const RankGroups& groups, const ParameterSpec& spec) {
  const Communicator &data = groups.data(), &tensor = groups.tensor(), &expert_data = groups.expert_data();
  switch (spec.shard.axis) {
    case ShardAxis::expert:
      if (!groups.same_rows()) return {expert_data.rank(), expert_data.size()};
      return {expert_data.rank() * tensor.size() + tensor.rank(), expert_data.size() * tensor.size()};
    case ShardAxis::tensor:
      return {data.rank(), data.size()};
    default:
      break;
  }
  return {data.rank() * tensor.size() + tensor.rank(), data.size() * tensor.size()};
}

}  // namespace

Ownership::Ownership(const RankGroups& groups, const PipelineGroups& pipe, const ParameterTable& table)
    : owned_(static_cast<size_t>(table.size())) {
  std::vector<int> order(owned_.size());
  std::iota(order.begin(), order.end(), 0);
  const Placement placement = pipe.placement(groups.placement());
  std::vector<int64_t> elements;
  for (int i = 0; i < table.size(); ++i)
    elements.push_back(pipe.owns(table[i]) ? local_shape(table[i], placement).numel() : 0);
  const auto local_elements = [&](int i) { return elements[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return local_elements(a) > local_elements(b); });
  std::map<ShardAxis, std::vector<int64_t>> loads;
  for (const int i : order) {
    const Replica me = replica_of(groups, table[i]);
    std::vector<int64_t>& load = loads[table[i].shard.axis];
    load.resize(static_cast<size_t>(me.count));
    const auto owner = std::min_element(load.begin(), load.end());
    *owner += local_elements(i);
    if (owner - load.begin() == me.index) owned_[static_cast<size_t>(i)] = {0, local_elements(i)};
  }
}

Ownership::Ownership(const RankGroups& groups, const PipelineGroups& pipe, const ParameterTable& table,
                     const Shards& shards) {
  for (int i = 0; i < table.size(); ++i) {
    const TensorShards& s = shards.of(i);
    const auto r = static_cast<size_t>(s.group->rank());
    const ShardAxis axis = table[i].shard.axis;
    const bool tensor_copies = axis == ShardAxis::none || (axis == ShardAxis::expert && groups.same_rows());
    const bool owned_elsewhere = !pipe.owns(table[i]) || (tensor_copies && groups.tensor().rank() > 0) ||
                                 groups.replica_group(flat_group(table[i])).rank() > 0;
    owned_.push_back(owned_elsewhere ? ElementRange{} : ElementRange{s.begins[r], s.begins[r + 1]});
  }
}

}  // namespace ingot
