// See run_accuracy.h.
#include "train/run_accuracy.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/process_memory.h"
#include "base/progress.h"
#include "base/spread.h"
#include "comm/agree.h"

namespace ingot {
namespace {

/// What a rank contributes to the comparison.
struct RankFacts {
  long long predicted = 0, measured = 0, prepared = 0, planned_save = 0, saved = 0, process = 0;
  double pause = 0, write = 0;
  std::string largest;  ///< term of its memory

  std::string text() const {
    return fmt::format("{} {} {} {} {} {} {} {} {}", predicted, measured, prepared, planned_save, saved,
                       process, pause, write, largest);
  }
  static RankFacts of(const std::string& text) {
    RankFacts f;
    int end = 0;
    const int read =
        std::sscanf(text.c_str(), "%lld %lld %lld %lld %lld %lld %lf %lf %n", &f.predicted, &f.measured,
                    &f.prepared, &f.planned_save, &f.saved, &f.process, &f.pause, &f.write, &end);
    INGOT_CHECK(read == 8, "facts of a rank: '{}'", text);
    f.largest = text.substr(static_cast<size_t>(end));
    return f;
  }
};

double median(const std::vector<double>& values) {
  return values.empty() ? 0 : spread_of(values).median;
}

std::string largest_term(const Preflight& f) {
  const std::pair<const char*, int64_t> terms[] = {{"weights", f.weight_bytes},
                                                   {"gradients", f.gradient_bytes},
                                                   {"in flight", f.transient_bytes},
                                                   {"optimizer", f.optimizer_bytes},
                                                   {"scratch of the update", f.scratch_bytes},
                                                   {"activations", f.activation_bytes()},
                                                   {"checkpoint copy", f.snapshot_bytes},
                                                   {"evaluation tasks", f.task_bytes},
                                                   {"sampling", f.source_bytes},
                                                   {"the program itself", f.process_bytes},
                                                   {"mapped tokens", f.data_bytes}};
  const auto& most = *std::max_element(std::begin(terms), std::end(terms),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} {}", most.first, format_bytes(static_cast<double>(most.second)));
}

void add_memory(const std::vector<RankFacts>& ranks, std::vector<Prediction>& out) {
  // Ranks that are threads of one process share its memory, and nobody knows whose is what.
  std::set<long long> processes;
  for (const RankFacts& r : ranks) processes.insert(r.process);
  const bool threads = ranks.size() > 1 && processes.size() == 1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankFacts& r = ranks[i];
    Prediction p{.what = Predicted::memory,
                 .of = ranks.size() > 1 ? fmt::format("rank {}", i) : "",
                 .predicted = static_cast<double>(r.predicted),
                 .largest = r.largest};
    if (threads)
      p.missing = "ranks are threads of one process";
    else if (r.measured <= r.prepared)
      p.missing = "the process was largest while its data were prepared";
    else
      p.measured = static_cast<double>(r.measured);
    out.push_back(std::move(p));
  }
}

}  // namespace

void RunAccuracy::prepared() {
  prepared_peak_ = restart_peak_resident_bytes() ? 0 : peak_resident_bytes();
}

void RunAccuracy::count_step(size_t phase, double seconds) {
  if (warm_up_ < kWarmUp) {
    ++warm_up_;
    return;
  }
  Steps& s = steps_[phase];
  if (s.seconds.size() < kKept) return s.seconds.push_back(seconds);
  s.seconds[s.next] = seconds;
  s.next = (s.next + 1) % kKept;
}

void RunAccuracy::count_save(const SaveReport& report) {
  if (report.step == saved_step_) return;
  saved_step_ = report.step;
  saved_bytes_ = report.bytes;
  writes_.push_back(report.write_seconds);
}

std::vector<Prediction> RunAccuracy::compare(const Preflight& plan, std::span<const std::string> names,
                                             Communicator& world) const {
  RankFacts mine;
  mine.predicted = plan.total_bytes(), mine.measured = peak_resident_bytes(), mine.prepared = prepared_peak_;
  mine.planned_save = plan.snapshot_bytes, mine.saved = saved_bytes_, mine.process = ::getpid();
  mine.pause = median(pauses_), mine.write = median(writes_), mine.largest = largest_term(plan);
  std::vector<RankFacts> ranks;
  for (const std::string& text : all_gather_text(world, mine.text())) ranks.push_back(RankFacts::of(text));
  std::vector<Prediction> out;
  add_memory(ranks, out);
  for (const auto& [phase, steps] : steps_) {
    Prediction p{.what = Predicted::step,
                 .of = names.size() > 1 ? fmt::format("phase '{}'", names[phase]) : ""};
    p.measured = median(steps.seconds);
    const StepForecast forecast = phase < expected_.size() ? expected_[phase] : StepForecast{};
    if (forecast.seconds > 0) p.predicted = forecast.seconds;
    p.largest = forecast.largest;
    p.missing = forecast.seconds > 0 || !forecast.missing.empty() ? forecast.missing : "nothing predicted it";
    out.push_back(std::move(p));
  }
  RankFacts all;
  for (const RankFacts& r : ranks) {
    all.planned_save += r.planned_save, all.saved += r.saved;
    all.pause = std::max(all.pause, r.pause), all.write = std::max(all.write, r.write);
  }
  if (all.saved == 0) return out;
  out.push_back({.what = Predicted::checkpoint,
                 .predicted = static_cast<double>(all.planned_save),
                 .measured = static_cast<double>(all.saved)});
  Prediction pause{.what = Predicted::pause, .measured = all.pause};
  long long most = 0;
  for (const RankFacts& r : ranks) most = std::max(most, r.planned_save);
  if (plan.copy_gbs > 0)
    pause.predicted = static_cast<double>(most) / (1e9 * plan.copy_gbs);
  else
    pause.missing = "copies from a device are not measured before a run";
  pause.largest = fmt::format("a copy of {}", format_bytes(static_cast<double>(most)));
  out.push_back(std::move(pause));
  out.push_back({.what = Predicted::write,
                 .measured = all.write,
                 .missing = "the rate of the storage is not measured before a run"});
  return out;
}

}  // namespace ingot
