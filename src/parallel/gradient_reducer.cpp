// See gradient_reducer.h.
#include "parallel/gradient_reducer.h"

#include <algorithm>

namespace ingot {

GradientReducer::GradientReducer(const RankGroups& groups, const ParameterTable& table,
                                 GradientBuffer& gradients, const PipelineGroups* pipe)
    : groups_(groups), table_(table), gradients_(gradients), pipe_(pipe) {
  gradients_.on_finished = [this](int parameter) { finished(parameter); };
}

GradientReducer::~GradientReducer() {
  gradients_.on_finished = nullptr;
}

GradientReducer::Awaited GradientReducer::nothing_yet(bool started) const {
  const size_t units = gradients_.layout().units.size();
  return {std::vector<int64_t>(units, 0), std::vector<bool>(units, started)};
}

GradientReducer::Awaited GradientReducer::of_step(int64_t micro_batches) const {
  Awaited awaited = nothing_yet(false);
  for (int i = 0; i < table_.size(); ++i)
    if (reports(i))
      awaited.reports[bucket_of(i)] += micro_batches * (pipe_ != nullptr ? pipe_->chunks_with(table_[i]) : 1);
  return awaited;
}

GradientReducer::Awaited GradientReducer::of_tape(int chunk) const {
  Awaited awaited = nothing_yet(true);
  for (int i = 0; i < table_.size(); ++i)
    if (reports(i) && pipe_->uses(chunk, table_[i]))
      ++awaited.reports[bucket_of(i)], awaited.started[bucket_of(i)] = false;
  return awaited;
}

void GradientReducer::begin_step(int64_t micro_batches) {
  overlapped_ = 0;
  travelling_.clear();
  tapes_.clear();
  step_ = of_step(each_tape() ? 1 : micro_batches);
  now_ = &step_;
  listening_ = true;
}

bool GradientReducer::waits_for_the_end(const FlatBucket& unit) const {
  if (unit.summed || each_tape()) return unit.summed;
  return pipe_ != nullptr &&
         std::any_of(unit.parameters.begin(), unit.parameters.end(), [&](int i) { return pipe_->shares(i); });
}

void GradientReducer::finished(int parameter) {
  if (!listening_) return;
  const size_t unit = bucket_of(parameter);
  if (--now_->reports[unit] > 0 || waits_for_the_end(gradients_.layout().units[unit])) return;
  start(static_cast<int>(unit));
  ++overlapped_;
}

void GradientReducer::start_rest() {
  for (size_t u = 0; u < now_->started.size(); ++u)
    if (!now_->started[u]) start(static_cast<int>(u));
}

void GradientReducer::end_micro_batch() {
  if (!each_tape()) return;
  start_rest();
  land_all();
  step_ = of_step(1);
}

namespace {

/// The backward pass, or half of one, of a table's entry.
const Work* backward_of(const ScheduleEntry& e) {
  if (e.beside) return &*e.beside;
  return e.work.kind != WorkKind::forward ? &e.work : nullptr;
}

}  // namespace

void GradientReducer::begins(std::span<const ScheduleEntry> entries) {
  const Work* work = backward_of(entries.front());
  if (!each_tape() || work == nullptr) return;
  const std::pair tape(work->micro_batch, work->chunk);
  if (tapes_.count(tape) == 0) tapes_[tape] = of_tape(work->chunk);
  now_ = &tapes_[tape];
}

/// Nothing is on its way behind a pass, since the next one may contribute to the same units.
void GradientReducer::ended(const ScheduleEntry& entry) {
  const Work* work = backward_of(entry);
  if (!each_tape() || work == nullptr) return;
  const bool last = work->kind != WorkKind::backward_input;
  if (last) start_rest();
  land_all();
  now_ = &step_;
  if (last) tapes_.erase({work->micro_batch, work->chunk});
}

void GradientReducer::finish() {
  listening_ = false;
  if (pipe_ != nullptr) pipe_->sum_shared(gradients_);
  if (each_tape()) return;
  start_rest();
  land_all();
}

/// What is not cut over tensor ranks, but lies where each of them has a part of the sum only.
void GradientReducer::sum_over_tensor_ranks(const FlatBucket& unit, const Tensor& flat) const {
  if (!unit.summed) return;
  std::vector<Pending> sums;
  for (const int i : unit.parameters) {
    const int64_t begin =
        (gradients_.layout().offsets[static_cast<size_t>(i)] - unit.begin) / size_of(flat.dtype());
    const Tensor g = flat.slice(begin, begin + gradients_.layout().shapes[static_cast<size_t>(i)].numel());
    if (g.numel() > 0) sums.push_back(groups_.tensor().all_reduce(g, g));
  }
  for (Pending& sum : sums) sum.wait();
}

void GradientReducer::start(int index) {
  now_->started[static_cast<size_t>(index)] = true;
  const FlatBucket& unit = gradients_.layout().units[static_cast<size_t>(index)];
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
  const FlatBucket& unit = gradients_.layout().units[static_cast<size_t>(travel.unit)];
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
