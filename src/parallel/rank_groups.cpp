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

RankGroups::RankGroups(const Grid& grid, int rank, const GroupMaker& make) {
  if (grid.size(GridAxis::cp) > 1) fail("grid {}: context parallelism does not run yet", grid.str());
  if (grid.size(GridAxis::etp) != grid.size(GridAxis::tp))
    throw Error(fmt::format("grid {}: the ranks of an expert group must hold different tokens", grid.str()),
                "leave etp as tp");
  const auto group = [&](const char* name, GridAxis axis) { return make(name, grid.group({axis}, rank)); };
  data_ = group("data", GridAxis::dp);
  tensor_ = group("tensor", GridAxis::tp);
  expert_ = group("expert", GridAxis::ep);
  expert_data_ = group("expert data", GridAxis::edp);
  placement_ = {tensor_->size(), tensor_->rank(), expert_->size(), expert_->rank()};
}

void reduce_gradients(const RankGroups& groups, const ParameterTable& table, const GradientBuffer& gradients) {
  const auto sum = [&](Communicator& group, int i) {
    if (group.size() > 1) group.all_reduce(gradients.gradient(i), gradients.gradient(i)).wait();
  };
  for (int i = 0; i < table.size(); ++i) {
    const ParameterSpec& p = table[i];
    sum(p.shard.axis == ShardAxis::expert ? groups.expert_data() : groups.data(), i);
    if (p.tensor_gradient == TensorGradient::partial) sum(groups.tensor(), i);
  }
}

double gradient_square_sum(const RankGroups& groups, const ParameterTable& table, const GradientBuffer& gradients) {
  double sums[3] = {0, 0, 0};  // by ShardAxis
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
