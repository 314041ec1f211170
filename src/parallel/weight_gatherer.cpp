// See unit_keeper.h.
#include "parallel/weight_gatherer.h"

#include <algorithm>

#include "parallel/strands.h"

namespace ingot {

WeightGatherer::WeightGatherer(const RankGroups& groups, const WeightSet& weights, WeightSet* memory,
                               const PipelineGroups* pipe)
    : groups_(groups), weights_(weights), memory_(memory), pipe_(pipe), passes_(1) {
  const std::vector<FlatBucket>& units = weights.layout().units;
  for (size_t u = 0; u < units.size(); ++u)
    if (units[u].end > units[u].begin) units_[units[u].part].push_back(u);
  states_.assign(units.size(), State::away);
  coming_.resize(units.size());
  gathers_.assign(units.size(), 0);
}

WeightGatherer::WeightGatherer(const RankGroups& groups, WeightSet& weights, const PipelineGroups* pipe)
    : WeightGatherer(groups, weights, &weights, pipe) {
  weights.set_keeper(this);
}

WeightGatherer::~WeightGatherer() {
  if (memory_ != nullptr) memory_->set_keeper(nullptr);
}

void WeightGatherer::use(int parameter) {
  const int unit = weights_.layout().bucket_of[static_cast<size_t>(parameter)];
  enter(passes_[std::min(static_cast<size_t>(Strands::current()), passes_.size() - 1)],
        weights_.layout().units[static_cast<size_t>(unit)].part);
  finish(static_cast<size_t>(unit));
}

/// Whether backward reads weights of a part: rows that were looked up it does not.
bool WeightGatherer::read_again(int64_t part) const {
  for (const size_t u : units_.at(part))
    for (const int i : weights_.layout().units[u].parameters)
      if (weights_.master(i).numel() > 0 && weights_.table()[i].role != ParamRole::embedding) return true;
  return part != depth_of_part(kEmbeddingPart);
}

/// Weight gradients that come later read no weights.
std::vector<int64_t> WeightGatherer::route_of(const Work& work) const {
  std::vector<int64_t> route;
  if (pipe_ == nullptr || work.kind == WorkKind::backward_weight) return route;
  const bool forward = work.kind == WorkKind::forward;
  for (const int64_t part : parts_of(pipe_->layout().at(pipe_->stage(), work.chunk)))
    if (units_.count(depth_of_part(part)) > 0 && (forward || read_again(depth_of_part(part))))
      route.push_back(depth_of_part(part));
  if (!forward) std::reverse(route.begin(), route.end());
  return route;
}

std::vector<WeightGatherer::Pass> WeightGatherer::passes_of(const ScheduleEntry& entry) const {
  std::vector<Pass> passes;
  if (entry.beside) passes.push_back({route_of(*entry.beside)});  // the first strand
  passes.push_back({route_of(entry.work)});
  return passes;
}

void WeightGatherer::begins(std::span<const ScheduleEntry> entries) {
  passes_ = passes_of(entries.front());
  for (const ScheduleEntry& later : entries.subspan(1)) {
    const std::vector<Pass> to_come = passes_of(later);
    if (to_come.front().route.empty() && to_come.back().route.empty()) continue;
    for (size_t strand = 0; strand < passes_.size(); ++strand)
      if (const Pass& p = to_come[std::min(strand, to_come.size() - 1)]; !p.route.empty())
        passes_[strand].then = p.route.front();
    return;
  }
}

void WeightGatherer::ended(const ScheduleEntry&) {
  passes_.assign(1, {});
}

/// An op of another part reads: that part comes, the next one starts, and what no strand wants goes.
void WeightGatherer::enter(Pass& pass, int64_t part) {
  if (part == pass.now || (!pass.route.empty() && part == pass.before)) return;
  pass.route.empty() ? wander(pass, part) : follow(pass, part);
  for (const auto& [other, units] : units_)
    if (std::none_of(passes_.begin(), passes_.end(), [&](const Pass& p) { return wants(p, other); }))
      for (const size_t u : units) release(u);
  for (const size_t u : units_.at(part)) bring(u);
  if (!pass.next) return;
  for (const size_t u : units_.at(*pass.next))
    if (states_[u] == State::away) bring(u), ++prefetched_;
}

/// What is out of its turn, as a matrix that several layers read, takes the place of the part before.
void WeightGatherer::follow(Pass& pass, int64_t part) const {
  const auto at =
      std::find(pass.route.begin() + static_cast<std::ptrdiff_t>(pass.met), pass.route.end(), part);
  pass.before = at == pass.route.end() ? part : pass.now;
  if (at == pass.route.end()) return;
  pass.now = part;
  pass.met = static_cast<size_t>(at - pass.route.begin()) + 1;
  pass.next = pass.met < pass.route.size() ? pass.route[pass.met] : pass.then;
}

/// The next part is the neighbour in the direction of the last step.
void WeightGatherer::wander(Pass& pass, int64_t part) const {
  const bool forward = !pass.now || part > *pass.now;
  pass.before = pass.now;
  pass.now = part;
  pass.next.reset();
  const auto here = units_.find(part);
  if (forward && std::next(here) != units_.end()) pass.next = std::next(here)->first;
  if (!forward && here != units_.begin()) pass.next = std::prev(here)->first;
}

bool WeightGatherer::wants(const Pass& pass, int64_t part) {
  return part == pass.now || part == pass.before || part == pass.next;
}

int64_t WeightGatherer::bytes_of(const Pass& pass) const {
  int64_t bytes = 0;
  for (const auto& [part, units] : units_)
    if (wants(pass, part))
      for (const size_t u : units) bytes += weights_.transient_bytes(static_cast<int>(u));
  return bytes;
}

void WeightGatherer::bring(size_t unit) {
  if (states_[unit] != State::away) return;
  if (memory_ != nullptr) coming_[unit] = gather_unit(groups_, weights_, static_cast<int>(unit));
  states_[unit] = State::coming;
  ++gathers_[unit];
  bytes_ += weights_.transient_bytes(static_cast<int>(unit));
  peak_bytes_ = std::max(peak_bytes_, bytes_);
}

void WeightGatherer::finish(size_t unit) {
  if (states_[unit] == State::here) return;
  INGOT_CHECK(states_[unit] == State::coming, "unit {}", unit);
  if (memory_ != nullptr) {
    coming_[unit].wait();
    memory_->arrived(static_cast<int>(unit));
  }
  states_[unit] = State::here;
}

void WeightGatherer::release(size_t unit) {
  if (states_[unit] == State::away) return;
  finish(unit);  // an operation that has begun ends on all ranks
  if (memory_ != nullptr) memory_->release(static_cast<int>(unit));
  states_[unit] = State::away;
  bytes_ -= weights_.transient_bytes(static_cast<int>(unit));
}

void WeightGatherer::release_all() {
  for (size_t u = 0; u < states_.size(); ++u) release(u);
  passes_.assign(1, {});
}

WeightGatherer::Plan WeightGatherer::plan(const RankGroups& groups, const WeightSet& weights,
                                          const PipelineGroups& pipe, std::span<const ScheduleEntry> table) {
  WeightGatherer paper(groups, weights, nullptr, &pipe);
  int64_t merged = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    paper.begins(table.subspan(i));
    int64_t together = 0;
    for (Pass& pass : paper.passes_) {
      int64_t most = 0;
      for (const int64_t part : std::vector<int64_t>(pass.route)) {
        paper.enter(pass, part);
        most = std::max(most, paper.bytes_of(pass));
      }
      together += most;
    }
    merged = std::max(merged, together);
    paper.ended(table[i]);
  }
  return {paper.gathers_, std::max(paper.peak_bytes_, merged)};
}

}  // namespace ingot
