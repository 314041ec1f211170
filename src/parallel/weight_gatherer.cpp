// See weight_gatherer.h.
#include "parallel/weight_gatherer.h"

#include <algorithm>

#include "parallel/interleaved_passes.h"

namespace ingot {

WeightGatherer::WeightGatherer(const RankGroups& groups, const WeightSet& weights, WeightSet* memory,
                               const PipelineGroups* pipe)
    : groups_(groups), weights_(weights), memory_(memory), pipe_(pipe), passes_(1) {
  const std::vector<FlatBucket>& buckets = weights.layout().buckets;
  for (size_t b = 0; b < buckets.size(); ++b)
    if (buckets[b].end > buckets[b].begin) buckets_[buckets[b].layer_group].push_back(b);
  states_.assign(buckets.size(), State::sharded);
  pending_.resize(buckets.size());
  gathers_.assign(buckets.size(), 0);
}

WeightGatherer::WeightGatherer(const RankGroups& groups, WeightSet& weights, const PipelineGroups* pipe)
    : WeightGatherer(groups, weights, &weights, pipe) {
  weights.set_gatherer(this);
}

WeightGatherer::~WeightGatherer() {
  if (memory_ != nullptr) memory_->set_gatherer(nullptr);
}

void WeightGatherer::use(int parameter) {
  const int bucket = weights_.layout().bucket_of[static_cast<size_t>(parameter)];
  enter(passes_[std::min(static_cast<size_t>(InterleavedPasses::current()), passes_.size() - 1)],
        weights_.layout().buckets[static_cast<size_t>(bucket)].layer_group);
  finish_unshard(static_cast<size_t>(bucket));
}

/// Whether backward reads weights of a layer group: it does not read embeddings.
bool WeightGatherer::read_in_backward(int64_t group) const {
  for (const size_t b : buckets_.at(group))
    for (const int i : weights_.layout().buckets[b].parameters)
      if (weights_.master(i).numel() > 0 && weights_.table()[i].role != ParamRole::embedding) return true;
  return group != depth_of_layer_group(kEmbeddingGroup);
}

/// Deferred weight gradients read no weights.
std::vector<int64_t> WeightGatherer::order_of(const Work& work) const {
  std::vector<int64_t> order;
  if (pipe_ == nullptr || work.kind == WorkKind::backward_weight) return order;
  const bool forward = work.kind == WorkKind::forward;
  for (const int64_t group : layer_groups_of(pipe_->layout().at(pipe_->stage(), work.chunk)))
    if (const int64_t depth = depth_of_layer_group(group);
        buckets_.count(depth) > 0 && (forward || read_in_backward(depth)))
      order.push_back(depth);
  if (!forward) std::reverse(order.begin(), order.end());
  return order;
}

std::vector<WeightGatherer::Pass> WeightGatherer::passes_of(const ScheduleEntry& entry) const {
  std::vector<Pass> passes;
  if (entry.beside) passes.push_back({order_of(*entry.beside)});  // the first of the interleaved passes
  passes.push_back({order_of(entry.work)});
  return passes;
}

void WeightGatherer::before_entry(std::span<const ScheduleEntry> entries) {
  passes_ = passes_of(entries.front());
  for (const ScheduleEntry& later : entries.subspan(1)) {
    const std::vector<Pass> to_come = passes_of(later);
    if (to_come.front().order.empty() && to_come.back().order.empty()) continue;
    for (size_t pass = 0; pass < passes_.size(); ++pass)
      if (const Pass& p = to_come[std::min(pass, to_come.size() - 1)]; !p.order.empty())
        passes_[pass].next_pass = p.order.front();
    return;
  }
}

void WeightGatherer::after_entry(const ScheduleEntry&) {
  passes_.assign(1, {});
}

/// If the op that runs reads another layer group than the last one: gathers it, prefetches the next, and
/// frees what no pass keeps.
void WeightGatherer::enter(Pass& pass, int64_t group) {
  if (group == pass.current || (!pass.order.empty() && group == pass.previous)) return;
  pass.order.empty() ? enter_by_direction(pass, group) : enter_in_order(pass, group);
  for (const auto& [other, buckets] : buckets_)
    if (std::none_of(passes_.begin(), passes_.end(), [&](const Pass& p) { return keeps(p, other); }))
      for (const size_t b : buckets) reshard(b);
  for (const size_t b : buckets_.at(group)) begin_unshard(b);
  if (!pass.next) return;
  for (const size_t b : buckets_.at(*pass.next))
    if (states_[b] == State::sharded) begin_unshard(b), ++prefetched_;
}

/// A layer group that is read out of order, as that of a shared matrix, replaces the previous one.
void WeightGatherer::enter_in_order(Pass& pass, int64_t group) const {
  const auto at =
      std::find(pass.order.begin() + static_cast<std::ptrdiff_t>(pass.reached), pass.order.end(), group);
  pass.previous = at == pass.order.end() ? group : pass.current;
  if (at == pass.order.end()) return;
  pass.current = group;
  pass.reached = static_cast<size_t>(at - pass.order.begin()) + 1;
  pass.next = pass.reached < pass.order.size() ? pass.order[pass.reached] : pass.next_pass;
}

/// The next layer group is the neighbour in the direction of the last step.
void WeightGatherer::enter_by_direction(Pass& pass, int64_t group) const {
  const bool forward = !pass.current || group > *pass.current;
  pass.previous = pass.current;
  pass.current = group;
  pass.next.reset();
  const auto here = buckets_.find(group);
  if (forward && std::next(here) != buckets_.end()) pass.next = std::next(here)->first;
  if (!forward && here != buckets_.begin()) pass.next = std::prev(here)->first;
}

bool WeightGatherer::keeps(const Pass& pass, int64_t group) {
  return group == pass.current || group == pass.previous || group == pass.next;
}

int64_t WeightGatherer::bytes_of(const Pass& pass) const {
  int64_t bytes = 0;
  for (const auto& [group, buckets] : buckets_)
    if (keeps(pass, group))
      for (const size_t b : buckets) bytes += weights_.transient_bytes(static_cast<int>(b));
  return bytes;
}

void WeightGatherer::begin_unshard(size_t bucket) {
  if (states_[bucket] != State::sharded) return;
  if (memory_ != nullptr) pending_[bucket] = gather_bucket(groups_, weights_, static_cast<int>(bucket));
  states_[bucket] = State::gathering;
  ++gathers_[bucket];
  bytes_ += weights_.transient_bytes(static_cast<int>(bucket));
  peak_bytes_ = std::max(peak_bytes_, bytes_);
}

void WeightGatherer::finish_unshard(size_t bucket) {
  if (states_[bucket] == State::unsharded) return;
  INGOT_CHECK(states_[bucket] == State::gathering, "bucket {}", bucket);
  if (memory_ != nullptr) {
    pending_[bucket].wait();
    memory_->complete_gather(static_cast<int>(bucket));
  }
  states_[bucket] = State::unsharded;
}

void WeightGatherer::reshard(size_t bucket) {
  if (states_[bucket] == State::sharded) return;
  finish_unshard(bucket);  // a collective that has begun must end on all ranks
  if (memory_ != nullptr) memory_->reshard(static_cast<int>(bucket));
  states_[bucket] = State::sharded;
  bytes_ -= weights_.transient_bytes(static_cast<int>(bucket));
}

void WeightGatherer::reshard_all() {
  for (size_t b = 0; b < states_.size(); ++b) reshard(b);
  passes_.assign(1, {});
}

WeightGatherer::Plan WeightGatherer::plan(const RankGroups& groups, const WeightSet& weights,
                                          const PipelineGroups& pipe, std::span<const ScheduleEntry> table) {
  WeightGatherer dry_run(groups, weights, nullptr, &pipe);
  int64_t interleaved_peak = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    dry_run.before_entry(table.subspan(i));
    int64_t sum = 0;
    for (Pass& pass : dry_run.passes_) {
      int64_t peak = 0;
      for (const int64_t group : std::vector<int64_t>(pass.order)) {
        dry_run.enter(pass, group);
        peak = std::max(peak, dry_run.bytes_of(pass));
      }
      sum += peak;
    }
    interleaved_peak = std::max(interleaved_peak, sum);
    dry_run.after_entry(table[i]);
  }
  return {dry_run.gathers_, std::max(dry_run.peak_bytes_, interleaved_peak)};
}

}  // namespace ingot
