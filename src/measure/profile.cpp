// See profile.h: sums over recorded steps. profile_text.cpp and profile_trace.cpp print them.
#include "measure/profile.h"

#include <algorithm>
#include <string_view>

namespace ingot {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// Sum over ranks of each one's median.
double sum_of_medians(const std::vector<RankProfile>& ranks, std::vector<double> RankProfile::*values) {
  double sum = 0;
  for (const RankProfile& r : ranks)
    if (!(r.*values).empty()) sum += spread_of(r.*values).median;
  return sum;
}

TimeOf time_of(StepPart phase) {
  switch (phase) {
    case StepPart::data:
      return TimeOf::data;
    case StepPart::optimizer:
    case StepPart::update:
      return TimeOf::optimizer;
    default:
      return TimeOf::rest;
  }
}

}  // namespace

const char* name_of(StepPart phase) {
  static const char* const kNames[] = {"data wait", "passes", "gradient norm", "update",
                                       "records",   "save",   "replay"};
  return kNames[static_cast<int>(phase)];
}

TimeOf time_of(const Op& op) {
  if (is_product(op.name)) return TimeOf::products;
  if (is_one_of(op.name, {"attention", "context_attention", "mla_cached"})) return TimeOf::attention;
  return op.transfers || op.dry_run != nullptr ? TimeOf::exchanges : TimeOf::kernels;
}

OpPass pass_of(const OpRun& run) {
  if (run.is_recompute) return OpPass::recompute;
  return run.direction == Direction::forward          ? OpPass::forward
         : run.direction == Direction::backward_input ? OpPass::input_gradient
                                                      : OpPass::weight_gradient;
}

void ProfileCell::add(const ProfileCell& o) {
  what = o.what;
  calls += o.calls;
  seconds += o.seconds, flops += o.flops, bytes += o.bytes, wire_bytes += o.wire_bytes;
}

Spread ProfileReport::step_seconds() const {
  std::vector<double> seconds(static_cast<size_t>(steps()), 0);
  for (const RankProfile& r : ranks)
    for (size_t s = 0; s < seconds.size(); ++s)
      seconds[s] = std::max(seconds[s], r.steps[s].end - r.steps[s].begin);
  return spread_of(std::move(seconds));
}

double RankProfile::crowding() const {
  double processor = 0, seconds = 0, update = 0;
  for (const StepSpan& step : steps) {
    processor += step.processor, seconds += step.end - step.begin;
    for (const PhaseSpan& p : step.phases) update += p.phase == StepPart::update ? p.end - p.begin : 0;
    for (const OpSpan& op : step.ops) {
      if (op.what != TimeOf::exchanges) continue;
      seconds -= op.seconds();
      for (const PhaseSpan& p : step.phases)
        if (p.phase == StepPart::update && op.begin >= p.begin && op.end <= p.end) update -= op.seconds();
    }
  }
  if (processor_share.empty() || seconds <= update) return 1;
  const double all = spread_of(processor_share).median * threads;  // processors while all ranks are busy
  return std::max(1.0, (processor / all - update) / (seconds - update));
}

double ProfileReport::peak_gflops() const {
  return sum_of_medians(ranks, &RankProfile::peak_gflops);
}
double ProfileReport::read_gbs() const {
  return sum_of_medians(ranks, &RankProfile::read_gbs);
}

std::array<double, kTimesOf> StepSpan::times() const {
  std::array<double, kTimesOf> t{};
  const auto at = [&](TimeOf what) -> double& { return t[static_cast<size_t>(what)]; };
  for (const PhaseSpan& p : phases) {
    double left = p.end - p.begin;
    for (const OpSpan& op : ops)
      if (op.begin >= p.begin && op.end <= p.end) at(op.what) += op.seconds(), left -= op.seconds();
    at(time_of(p.phase)) += left;
  }
  return t;
}

std::array<double, kTimesOf> ProfileReport::times(const RankProfile& rank) const {
  std::array<double, kTimesOf> mean{};
  for (const StepSpan& step : rank.steps) {
    const std::array<double, kTimesOf> t = step.times();
    for (size_t i = 0; i < t.size(); ++i) mean[i] += t[i] / static_cast<double>(rank.steps.size());
  }
  return mean;
}

std::map<ProfileReport::Key, ProfileCell> ProfileReport::cells() const {
  std::map<Key, ProfileCell> all;
  for (const RankProfile& r : ranks)
    for (const StepSpan& step : r.steps)
      for (const OpSpan& op : step.ops)
        all[{op.op, op.segment, op.layer, op.pass}].add(
            {op.what, 1, op.seconds(), op.flops, op.bytes, op.wire_bytes});
  return all;
}

std::vector<DeviceCount> counts_of(const DeviceCounters& c) {
  return {{"launches", "kernels", c.launches},
          {"graph_launches", "graphs", c.graph_launches},
          {"synchronizations", "waits of the host", c.synchronizations},
          {"allocations", "allocations", c.allocations},
          {"uploads", "copies to it", c.uploads},
          {"downloads", "copies from it", c.downloads},
          {"unplanned_copies", "of these unplanned", c.unplanned_copies},
          {"pageable_copies", "of these with pageable memory", c.pageable_copies, true}};
}

}  // namespace ingot
