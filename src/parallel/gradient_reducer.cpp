// See gradient_reducer.h.
#include "parallel/gradient_reducer.h"

#include <algorithm>
#include <numeric>

#include "device/host_kernel.h"
#include "tensor/host_copy.h"

namespace ingot {

GradientReducer::GradientReducer(const RankGroups& groups, const ParameterTable& table,
                                 GradientBuffer& gradients, const PipelineGroups* pipe)
    : groups_(groups), table_(table), gradients_(gradients), pipe_(pipe) {
  const std::vector<bool> late = reduced_late();
  parts_ = reduction_parts(table, groups.placement(), gradients.layout(), late);
  part_of_.resize(late.size());
  for (size_t k = 0; k < parts_.size(); ++k) {
    for (const int i : parts_[k].parameters) part_of_[static_cast<size_t>(i)] = k;
    at_end_.push_back(std::any_of(parts_[k].parameters.begin(), parts_[k].parameters.end(),
                                  [&](int i) { return late[static_cast<size_t>(i)]; }));
  }
  gradients_.on_finished = [this](int parameter) { finished(parameter); };
}

GradientReducer::~GradientReducer() {
  gradients_.on_finished = nullptr;
}

std::vector<bool> GradientReducer::reduced_late() const {
  std::vector<bool> late;
  const FlatLayout& layout = gradients_.layout();
  for (int i = 0; i < table_.size(); ++i) {
    const auto bucket = static_cast<size_t>(layout.bucket_of[static_cast<size_t>(i)]);
    late.push_back(layout.buckets[bucket].summed ||
                   (!reduces_each_tape() && pipe_ != nullptr && pipe_->held_by_other_stages(i)));
  }
  return late;
}

GradientReducer::Expected GradientReducer::no_reports(bool started) const {
  return {std::vector<int64_t>(parts_.size(), 0), std::vector<bool>(parts_.size(), started)};
}

GradientReducer::Expected GradientReducer::reports_of_step(int64_t micro_batches) const {
  Expected expected = no_reports(false);
  for (int i = 0; i < table_.size(); ++i)
    if (is_reported(i))
      expected.reports[part_of(i)] += micro_batches * (pipe_ != nullptr ? pipe_->chunks_with(table_[i]) : 1);
  return expected;
}

GradientReducer::Expected GradientReducer::reports_of_tape(int chunk) const {
  Expected expected = no_reports(true);
  for (int i = 0; i < table_.size(); ++i)
    if (is_reported(i) && pipe_->uses(chunk, table_[i]))
      ++expected.reports[part_of(i)], expected.started[part_of(i)] = false;
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

void GradientReducer::finished(int parameter) {
  if (!in_step_) return;
  const size_t part = part_of(parameter);
  if (--current_->reports[part] > 0 || at_end_[part]) return;
  start(part);
  ++overlapped_;
}

void GradientReducer::start_remaining() {
  for (size_t u = 0; u < current_->started.size(); ++u)
    if (!current_->started[u]) start(u);
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

/// Without the padding between parameters.
void GradientReducer::digest_own(const ReductionRange& range, const Tensor& flat) const {
  const auto add = [this, digest = own_digest, parameters = range.parameters, first = range.begin,
                    size = size_of(flat.dtype())](const void* values) {
    for (const int i : parameters) {
      const auto p = static_cast<size_t>(i);
      const int64_t begin = gradients_.layout().offsets[p] - first;
      const int64_t bytes = gradients_.layout().shapes[p].numel() * size;
      if (bytes > 0) digest->add(static_cast<const char*>(values) + begin, bytes, p);
    }
  };
  Device& device = device_of(flat.device);
  if (!device.runs_host_kernels()) return add(HostCopy(flat).tensor().data);
  device.launch({{{flat.data, flat.bytes(), false}}, [add](std::span<void* const> at) { add(at[0]); }});
}

/// Sums the parameters that tensor ranks replicate, but of whose gradient each of them has only a partial
/// sum.
void GradientReducer::sum_over_tensor_ranks(const ReductionRange& range, const Tensor& flat) const {
  if (!gradients_.layout().buckets[static_cast<size_t>(range.bucket)].summed) return;
  std::vector<Pending> sums;
  for (const int i : range.parameters) {
    const int64_t begin =
        (gradients_.layout().offsets[static_cast<size_t>(i)] - range.begin) / size_of(flat.dtype());
    const Tensor g = flat.slice(begin, begin + gradients_.layout().shapes[static_cast<size_t>(i)].numel());
    if (g.numel() > 0) sums.push_back(groups_.tensor().all_reduce(g, g));
  }
  for (Pending& sum : sums) sum.wait();
}

void GradientReducer::start(size_t part) {
  current_->started[part] = true;
  if (on_start) on_start(part);
  for (const ReductionRange& range : parts_[part].ranges)
    if (range.begin < range.end) start(range);
}

void GradientReducer::start(const ReductionRange& range) {
  const FlatBucket& bucket = gradients_.layout().buckets[static_cast<size_t>(range.bucket)];
  const ShardLevel level = groups_.placement().sharding.level;
  // Staging has memory for one bucket in flight and one that is being written.
  if (gradients_.uses_staging()) wait_all();
  const Tensor flat = range.whole ? gradients_.bucket(range.bucket)
                                  : gradients_.part(range.parameters, range.begin, range.end);
  if (own_digest != nullptr) digest_own(range, flat);
  if (!sums) {
    if (gradients_.uses_staging()) gradients_.accumulate_shard(range.bucket);  // frees its staging
    return;
  }
  sum_over_tensor_ranks(range, flat);
  const std::vector<int64_t> rows = range.rows(bucket, size_of(flat.dtype()));
  const auto me = rows.begin() + bucket.rank;
  const int64_t first = std::accumulate(rows.begin(), me, int64_t{0});
  PendingReduction r{range.bucket, flat.slice(first, first + *me), {}};
  if (level == ShardLevel::none) {
    Communicator& group = groups_.data_group(bucket.group);
    if (group.size() > 1) r.sum = group.all_reduce(flat, flat);
  } else if (bucket.ranks > 1) {
    Communicator& group = groups_.shard_group(bucket.group);
    r.sum = range.whole ? group.reduce_scatter(flat, r.shard) : group.reduce_scatter(flat, rows, r.shard);
  }
  in_flight_reductions_.push_back(std::move(r));
}

void GradientReducer::wait(PendingReduction& reduction) {
  reduction.sum.wait();
  const FlatBucket& bucket = gradients_.layout().buckets[static_cast<size_t>(reduction.bucket)];
  if (groups_.placement().sharding.level != ShardLevel::none) {
    Communicator& replicas = groups_.replica_group(bucket.group);
    if (replicas.size() > 1 && reduction.shard.numel() > 0)
      replicas.all_reduce(reduction.shard, reduction.shard).wait();
  }
  if (gradients_.uses_staging()) gradients_.accumulate_shard(reduction.bucket);
}

void GradientReducer::wait_all() {
  for (PendingReduction& r : in_flight_reductions_) wait(r);
  in_flight_reductions_.clear();
}

}  // namespace ingot
