// See rank_groups.h.
#include "parallel/rank_groups.h"

#include <numeric>

#include "parallel/shards.h"

namespace ingot {
namespace {

double square_sum(const Tensor& t) {
  double sum = 0;
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double v = t.dtype() == DType::f64 ? t.as<double>()[i] : t.as<float>()[i];
    sum += v * v;
  }
  return sum;
}

}  // namespace

RankGroups::RankGroups(const Grid& grid, int rank, const GroupMaker& make, const RankOptions& options)
    : grid_(grid), rank_(rank), options_(options), batch_rank_(grid.index(GridAxis::dp, rank)), batch_ranks_(grid.size(GridAxis::dp)) {
  const bool same_rows = grid.size(GridAxis::tp) > 1 && !options.sequence_parallel;
  if (same_rows && grid.size(GridAxis::etp) != grid.size(GridAxis::tp))
    throw Error(fmt::format("grid {}: the ranks of an expert group must hold different tokens", grid.str()),
                "leave etp as tp, or turn sequence parallelism on");
  const auto group = [&](const char* name, std::initializer_list<GridAxis> axes) { return make(name, grid.group(axes, rank)); };
  std::vector<int> all(static_cast<size_t>(grid.ranks()));
  std::iota(all.begin(), all.end(), 0);
  world_ = make("world", all);
  data_ = group("data", {GridAxis::dp, GridAxis::cp});
  tokens_ = options.sequence_parallel ? group("tokens", {GridAxis::dp, GridAxis::cp, GridAxis::tp})
                                      : group("tokens", {GridAxis::dp, GridAxis::cp});
  context_ = group("context", {GridAxis::cp});
  tensor_ = group("tensor", {GridAxis::tp});
  expert_ = same_rows ? group("expert", {GridAxis::ep}) : group("expert", {GridAxis::ep, GridAxis::etp});
  expert_data_ = group("expert data", {GridAxis::edp});
  placement_ = {tensor_->size(), tensor_->rank(), grid.size(GridAxis::ep), grid.index(GridAxis::ep, rank)};
  placement_.flat_multiple = data_->size() * expert_data_->size();
  if (same_rows) return;
  placement_.expert_tensor_size = grid.size(GridAxis::etp);
  placement_.expert_tensor_rank = grid.index(GridAxis::etp, rank);
}

void reduce_gradients(const RankGroups& groups, const ParameterTable& table, const GradientBuffer& gradients,
                      const Shards* shards) {
  for (int i = 0; i < table.size() && groups.tensor().size() > 1; ++i) {
    const bool parts = groups.options().sequence_parallel || table[i].tensor_gradient == TensorGradient::partial;
    const Tensor g = gradients.gradient(i);
    if (parts && table[i].shard.axis == ShardAxis::none && g.numel() > 0) groups.tensor().all_reduce(g, g).wait();
  }
  if (shards != nullptr) return shards->reduce(gradients);
  for (const FlatGroup group : kFlatGroups) {
    const Tensor flat = gradients.flat(group);
    if (groups.replicas(group).size() > 1 && flat.numel() > 0) groups.replicas(group).all_reduce(flat, flat).wait();
  }
}

double gradient_square_sum(const RankGroups& groups, const ParameterTable& table, const GradientBuffer& gradients) {
  double sums[3] = {0, 0, 0};  // by ShardAxis; experts are cut over both axes of their group
  for (int i = 0; i < table.size(); ++i)
    sums[static_cast<int>(table[i].shard.axis)] += square_sum(gradients.gradient(i));
  const auto over = [](Communicator& group, double* sum) {
    const Tensor t = Tensor::of(sum, {1});
    group.all_reduce(t, t).wait();
  };
  over(groups.tensor(), &sums[static_cast<int>(ShardAxis::tensor)]);
  over(groups.expert(), &sums[static_cast<int>(ShardAxis::expert)]);
  return sums[0] + sums[1] + sums[2];
}

}  // namespace ingot
