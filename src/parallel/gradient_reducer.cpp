// See gradient_reducer.h.
#include "parallel/gradient_reducer.h"

#include <algorithm>

namespace ingot {

GradientReducer::GradientReducer(const RankGroups& groups, const ParameterTable& table, GradientBuffer& gradients,
                                 const PipelineGroups* pipe)
    : groups_(groups), table_(table), gradients_(gradients), pipe_(pipe) {
  gradients_.on_finished = [this](int parameter) { finished(parameter); };
}

GradientReducer::~GradientReducer() { gradients_.on_finished = nullptr; }

void GradientReducer::expect_units(int64_t micro_batches) {
  const FlatLayout& layout = gradients_.layout();
  started_.assign(layout.units.size(), false);
  waiting_for_.assign(layout.units.size(), 0);
  for (int i = 0; i < table_.size(); ++i)
    if (table_[i].trainable && layout.shapes[static_cast<size_t>(i)].numel() > 0)
      waiting_for_[static_cast<size_t>(layout.unit_of[static_cast<size_t>(i)])] +=
          micro_batches * (pipe_ != nullptr ? pipe_->chunks_with(table_[i]) : 1);
}

void GradientReducer::begin_step(int64_t micro_batches) {
  overlapped_ = 0;
  travelling_.clear();
  expect_units(each_micro_batch() ? 1 : micro_batches);
  listening_ = true;
}

bool GradientReducer::waits_for_the_end(const FlatUnit& unit) const {
  return unit.summed || (pipe_ != nullptr && std::any_of(unit.parameters.begin(), unit.parameters.end(),
                                                         [&](int i) { return pipe_->shares(i); }));
}

void GradientReducer::finished(int parameter) {
  if (!listening_) return;
  const auto unit = static_cast<size_t>(gradients_.layout().unit_of[static_cast<size_t>(parameter)]);
  if (--waiting_for_[unit] > 0 || waits_for_the_end(gradients_.layout().units[unit])) return;
  start(static_cast<int>(unit));
  ++overlapped_;
}

void GradientReducer::start_rest() {
  for (size_t u = 0; u < started_.size(); ++u)
    if (!started_[u]) start(static_cast<int>(u));
}

void GradientReducer::end_micro_batch() {
  if (!each_micro_batch()) return;
  start_rest();
  land_all();
  expect_units(1);
}

void GradientReducer::finish() {
  listening_ = false;
  if (each_micro_batch()) return;
  if (pipe_ != nullptr) pipe_->sum_shared(gradients_);
  start_rest();
  land_all();
}

/// What is not cut over tensor ranks, but lies where each of them has a part of the sum only.
void GradientReducer::sum_over_tensor_ranks(const FlatUnit& unit, const Tensor& flat) const {
  if (!unit.summed) return;
  std::vector<Pending> sums;
  for (const int i : unit.parameters) {
    const int64_t begin = (gradients_.layout().offsets[static_cast<size_t>(i)] - unit.begin) / size_of(flat.dtype());
    const Tensor g = flat.slice(begin, begin + gradients_.layout().shapes[static_cast<size_t>(i)].numel());
    if (g.numel() > 0) sums.push_back(groups_.tensor().all_reduce(g, g));
  }
  for (Pending& sum : sums) sum.wait();
}

void GradientReducer::start(int index) {
  started_[static_cast<size_t>(index)] = true;
  const FlatUnit& unit = gradients_.layout().units[static_cast<size_t>(index)];
  if (unit.begin == unit.end) return;
  const ShardLevel level = groups_.placement().sharing.level;
  // Full sharding has memory for the unit that travels and the one that is being written.
  if (level == ShardLevel::full) land_all();
  const Tensor flat = gradients_.unit(index);
  sum_over_tensor_ranks(unit, flat);
  const int64_t share = flat.numel() / unit.ranks;
  Travel travel{index, flat.slice(unit.rank * share, (unit.rank + 1) * share), {}};
  if (level == ShardLevel::none) {
    Communicator& group = groups_.replicas(unit.group);
    if (group.size() > 1) travel.sum = group.all_reduce(flat, flat);
  } else if (unit.ranks > 1) {
    travel.sum = groups_.sharers(unit.group).reduce_scatter(flat, travel.own);
  }
  travelling_.push_back(std::move(travel));
}

void GradientReducer::land(Travel& travel) {
  travel.sum.wait();
  const FlatUnit& unit = gradients_.layout().units[static_cast<size_t>(travel.unit)];
  const ShardLevel level = groups_.placement().sharing.level;
  if (level == ShardLevel::none) return;
  Communicator& copies = groups_.share_copies(unit.group);
  if (copies.size() > 1) copies.all_reduce(travel.own, travel.own).wait();
  if (level == ShardLevel::full) gradients_.absorb(travel.unit);
}

void GradientReducer::land_all() {
  for (Travel& travel : travelling_) land(travel);
  travelling_.clear();
}

void reduce_gradients(const RankGroups& groups, const ParameterTable& table, GradientBuffer& gradients) {
  GradientReducer reducer(groups, table, gradients);
  reducer.begin_step(1);
  reducer.end_micro_batch();
  reducer.finish();
}

}  // namespace ingot
