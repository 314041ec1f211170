// See rank_stats.h.
#include "train/rank_stats.h"

#include <algorithm>
#include <limits>

namespace ingot {
namespace {

/// Calls f for every number that is a sum over targets, always in the same order.
template <class F>
void for_each_loss_sum(StepStats& s, const F& f) {
  const auto head = [&](HeadStats& h) {
    f(h.nll);
    f(h.objective);
    f(h.valid);
    f(h.lse);
  };
  head(s);
  for (HeadStats& h : s.mtp) head(h);
  for (double& sum : s.sums) f(sum);
  f(s.compared);
  f(s.unequal);
}

/// Calls f for every number that layers sum over their tokens.
template <class F>
void for_each_layer_sum(StepStats& s, const F& f) {
  for (auto& [layer, counts] : s.expert_counts)
    for (int64_t& n : counts) f(n);
  for (auto& [layer, counts] : s.source_expert_counts)
    for (int64_t& n : counts) f(n);
  for (auto& [layer, entropy] : s.router_entropy) f(entropy);
  for (auto& [layer, square] : s.residual_square) f(square);
  f(s.dropped_choices);
}

void take_largest(Communicator& group, std::vector<double>& values) {
  if (group.size() == 1 || values.empty()) return;
  const auto n = static_cast<int64_t>(values.size());
  std::vector<double> all(values.size() * static_cast<size_t>(group.size()));
  group.all_gather(Tensor::of(values.data(), {n}), Tensor::of(all.data(), {group.size() * n})).wait();
  for (size_t i = 0; i < all.size(); ++i)
    values[i % values.size()] = std::max(values[i % values.size()], all[i]);
}

/// Where context ranks exchange heads, each has some heads of a tensor rank: puts this rank's at their
/// position among all.
void place_heads(const RankGroups& groups, std::vector<double>& logits) {
  const Communicator& group = groups.context_inner();
  if (group.size() == 1) return;
  const size_t mine = logits.size();
  std::vector<double> all(mine * static_cast<size_t>(group.size()), -std::numeric_limits<double>::infinity());
  std::copy(logits.begin(), logits.end(), all.begin() + static_cast<std::ptrdiff_t>(mine) * group.rank());
  logits = std::move(all);
}

}  // namespace

void combine(const RankGroups& groups, const PipelineGroups* pipe, StepStats& stats) {
  const auto sum_over = [](Communicator& group, const auto& for_each) {
    std::vector<double> sums;
    for_each([&](auto& x) { sums.push_back(static_cast<double>(x)); });
    const Tensor t = Tensor::of(sums.data(), {static_cast<int64_t>(sums.size())});
    if (group.size() > 1) group.all_reduce(t, t).wait();
    auto sum = sums.begin();
    for_each([&](auto& x) { x = static_cast<std::remove_reference_t<decltype(x)>>(*sum++); });
  };
  sum_over(groups.data(), [&](const auto& f) { for_each_loss_sum(stats, f); });
  sum_over(groups.tokens(), [&](const auto& f) { for_each_layer_sum(stats, f); });
  if (pipe != nullptr)  // a stage has zeros for what it does not compute
    sum_over(pipe->forward(), [&](const auto& f) {
      for_each_loss_sum(stats, f);
      for_each_layer_sum(stats, f);
    });
  for (auto& [layer, logits] : stats.attention_logits) {
    place_heads(groups, logits);
    take_largest(groups.data(), logits);
  }
  std::vector<double> largest{stats.max_attention_logit};
  take_largest(groups.world(), largest);
  stats.max_attention_logit = largest[0];
}

}  // namespace ingot
