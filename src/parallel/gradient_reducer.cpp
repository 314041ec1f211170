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

GradientReducer::Expected GradientReducer::no_reports(bool started) const {
  const size_t buckets = gradients_.layout().buckets.size();
  return {std::vector<int64_t>(buckets, 0), std::vector<bool>(buckets, started)};
}

GradientReducer::Expected GradientReducer::reports_of_step(int64_t micro_batches) const {
  Expected expected = no_reports(false);
  for (int i = 0; i < table_.size(); ++i)
    if (is_reported(i))
      expected.reports[bucket_of(i)] +=
          micro_batches * (pipe_ != nullptr ? pipe_->chunks_with(table_[i]) : 1);
  return expected;
}

GradientReducer::Expected GradientReducer::reports_of_tape(int chunk) const {
  Expected expected = no_reports(true);
  for (int i = 0; i < table_.size(); ++i)
    if (is_reported(i) && pipe_->uses(chunk, table_[i]))
      ++expected.reports[bucket_of(i)], expected.started[bucket_of(i)] = false;
  return expected;
}

void GradientReducer::begin_step(int64_t micro_batches) {
  overlapped_ = 0;
  in_flight_reductions_.clear();
  tapes_.clear();
  step_ = reports_of_step(reduces_each_tape() ? 1 : micro_batches);
  current_ = &step_;
  in_step_ = true;
}

bool GradientReducer::reduced_at_end(const FlatBucket& bucket) const {
  if (bucket.summed || reduces_each_tape()) return bucket.summed;
  return pipe_ != nullptr && std::any_of(bucket.parameters.begin(), bucket.parameters.end(),
                                         [&](int i) { return pipe_->held_by_other_stages(i); });
}

void GradientReducer::finished(int parameter) {
  if (!in_step_) return;
  const size_t bucket = bucket_of(parameter);
  if (--current_->reports[bucket] > 0 || reduced_at_end(gradients_.layout().buckets[bucket])) return;
  start(static_cast<int>(bucket));
  ++overlapped_;
}

void GradientReducer::start_remaining() {
  for (size_t u = 0; u < current_->started.size(); ++u)
    if (!current_->started[u]) start(static_cast<int>(u));
}

void GradientReducer::end_micro_batch() {
  if (!reduces_each_tape()) return;
  start_remaining();
  wait_all();
  step_ = reports_of_step(1);
}

namespace {

/// The backward, or half of one, of an entry of the schedule; nullptr: it has none.
const Work* backward_of(const ScheduleEntry& e) {
  if (e.beside) return &*e.beside;
  return e.work.kind != WorkKind::forward ? &e.work : nullptr;
}

}  // namespace

void GradientReducer::before_entry(std::span<const ScheduleEntry> entries) {
  const Work* work = backward_of(entries.front());
  if (!reduces_each_tape() || work == nullptr) return;
  const std::pair tape(work->micro_batch, work->chunk);
  if (tapes_.count(tape) == 0) tapes_[tape] = reports_of_tape(work->chunk);
  current_ = &tapes_[tape];
}

/// Waits for all reductions, since the next entry may contribute to the same buckets.
void GradientReducer::after_entry(const ScheduleEntry& entry) {
  const Work* work = backward_of(entry);
  if (!reduces_each_tape() || work == nullptr) return;
  const bool last = work->kind != WorkKind::backward_input;
  if (last) start_remaining();
  wait_all();
  current_ = &step_;
  if (last) tapes_.erase({work->micro_batch, work->chunk});
}

void GradientReducer::finish() {
  in_step_ = false;
  if (pipe_ != nullptr) pipe_->sum_over_stages(gradients_);
  if (reduces_each_tape()) return;
  start_remaining();
  wait_all();
}

/// Sums the parameters that tensor ranks replicate, but of whose gradient each of them has only a partial
/// sum.
void GradientReducer::sum_over_tensor_ranks(const FlatBucket& bucket, const Tensor& flat) const {
  if (!bucket.summed) return;
  std::vector<Pending> sums;
  for (const int i : bucket.parameters) {
    const int64_t begin =
        (gradients_.layout().offsets[static_cast<size_t>(i)] - bucket.begin) / size_of(flat.dtype());
    const Tensor g = flat.slice(begin, begin + gradients_.layout().shapes[static_cast<size_t>(i)].numel());
    if (g.numel() > 0) sums.push_back(groups_.tensor().all_reduce(g, g));
  }
  for (Pending& sum : sums) sum.wait();
}

void GradientReducer::start(int index) {
  current_->started[static_cast<size_t>(index)] = true;
  const FlatBucket& bucket = gradients_.layout().buckets[static_cast<size_t>(index)];
  if (bucket.begin == bucket.end) return;
  const ShardLevel level = groups_.placement().sharding.level;
  // Full sharding has memory for one bucket in flight and one that is being written.
  if (level == ShardLevel::full) wait_all();
  const Tensor flat = gradients_.bucket(index);
  sum_over_tensor_ranks(bucket, flat);
  const int64_t size = flat.numel() / bucket.ranks;
  PendingReduction r{index, flat.slice(bucket.rank * size, (bucket.rank + 1) * size), {}};
  if (level == ShardLevel::none) {
    Communicator& group = groups_.data_group(bucket.group);
    if (group.size() > 1) r.sum = group.all_reduce(flat, flat);
  } else if (bucket.ranks > 1) {
    r.sum = groups_.shard_group(bucket.group).reduce_scatter(flat, r.shard);
  }
  in_flight_reductions_.push_back(std::move(r));
}

void GradientReducer::wait(PendingReduction& reduction) {
  reduction.sum.wait();
  const FlatBucket& bucket = gradients_.layout().buckets[static_cast<size_t>(reduction.bucket)];
  const ShardLevel level = groups_.placement().sharding.level;
  if (level == ShardLevel::none) return;
  Communicator& replicas = groups_.replica_group(bucket.group);
  if (replicas.size() > 1) replicas.all_reduce(reduction.shard, reduction.shard).wait();
  if (level == ShardLevel::full) gradients_.accumulate_shard(reduction.bucket);
}

void GradientReducer::wait_all() {
  for (PendingReduction& r : in_flight_reductions_) wait(r);
  in_flight_reductions_.clear();
}

}  // namespace ingot
