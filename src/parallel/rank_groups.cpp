// See rank_groups.h.
#include "parallel/rank_groups.h"

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
    : options_(options), batch_rank_(grid.index(GridAxis::dp, rank)), batch_ranks_(grid.size(GridAxis::dp)) {
  const bool same_rows = grid.size(GridAxis::tp) > 1 && !options.sequence_parallel;
  if (same_rows && grid.size(GridAxis::etp) != grid.size(GridAxis::tp))
    throw Error(fmt::format("grid {}: the ranks of an expert group must hold different tokens", grid.str()),
                "leave etp as tp, or turn sequence parallelism on");
  const auto group = [&](const char* name, std::initializer_list<GridAxis> axes) { return make(name, grid.group(axes, rank)); };
  data_ = group("data", {GridAxis::dp, GridAxis::cp});
  tokens_ = options.sequence_parallel ? group("tokens", {GridAxis::dp, GridAxis::cp, GridAxis::tp})
                                      : group("tokens", {GridAxis::dp, GridAxis::cp});
  context_ = group("context", {GridAxis::cp});
  tensor_ = group("tensor", {GridAxis::tp});
  expert_ = same_rows ? group("expert", {GridAxis::ep}) : group("expert", {GridAxis::ep, GridAxis::etp});
  expert_data_ = group("expert data", {GridAxis::edp});
  placement_ = {tensor_->size(), tensor_->rank(), grid.size(GridAxis::ep), grid.index(GridAxis::ep, rank)};
  if (same_rows) return;
  placement_.expert_tensor_size = grid.size(GridAxis::etp);
  placement_.expert_tensor_rank = grid.index(GridAxis::etp, rank);
}

void reduce_gradients(const RankGroups& groups, const ParameterTable& table, const GradientBuffer& gradients) {
  const auto sum = [&](Communicator& group, int i) {
    if (group.size() > 1) group.all_reduce(gradients.gradient(i), gradients.gradient(i)).wait();
  };
  for (int i = 0; i < table.size(); ++i) {
    const ParameterSpec& p = table[i];
    switch (p.shard.axis) {
      case ShardAxis::expert: sum(groups.expert_data(), i); break;
      case ShardAxis::tensor: sum(groups.data(), i); break;
      default:
        sum(groups.tokens(), i);
        if (p.tensor_gradient == TensorGradient::partial && !groups.options().sequence_parallel) sum(groups.tensor(), i);
    }
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
