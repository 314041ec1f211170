// What a run says about itself: run.json with an entry for this start, lines of the log, and the numbers of
// a page for Prometheus. See trainer.h.
#include <algorithm>
#include <iterator>

#include "base/clock.h"
#include "base/log.h"
#include "base/parallel.h"
#include "checkpoint/manifest.h"
#include "comm/launch.h"
#include "device/simd/isa.h"
#include "train/resume_check.h"
#include "train/run_layout.h"
#include "train/trainer.h"

namespace ingot {

RunRecord::Start Trainer::this_start() const {
  RunRecord::Start start = start_of_this_program(wall_seconds());
  start.set("first step", step() + 1);
  start.set("kernels", kernel_set_of(recipe()));
  if (!accepted_kernels_.empty()) start.set("accepted kernels of the checkpoint", accepted_kernels_);
  start.set("instruction set", isa_name(active_isa()));
  start.set("threads", static_cast<int64_t>(num_threads()));
  start.set("ranks", static_cast<int64_t>(ranks_.world().ranks()));
  if (const std::string mpi = mpi_name(); !mpi.empty()) start.set("mpi", mpi);
  if (ranks_.world().ranks() > 1) {
    std::string layout;
    for (const std::string& line : describe_layout(recipe())) layout += (layout.empty() ? "" : "; ") + line;
    start.set("layout", layout);
  }
  return start;
}

void Trainer::write_record() {
  RunRecord record = RunRecord::of_this_machine(recipe().run.folder, wall_seconds());
  const ParameterCounts n = count_parameters(model().decoder());
  record.set("model", "parameters", n.total);
  record.set("model", "active parameters", n.active);
  record.set("model", "without embedding", n.without_embedding);
  for (const data::Dataset& s : data_->sources) {
    record.set("data", s.name() + " train tokens", s.train()->tokens());
    record.set("data", s.name() + " content", s.train()->content_hash());
  }
  record.set("data", "tokenizer", data_->tokenizer.content_hash());
  record.set("data", "vocabulary", static_cast<int64_t>(data_->vocab));
  const DocumentTokens ends = document_tokens(recipe().data, data_->tokenizer);
  const auto text_of = [&](std::optional<int32_t> id) {
    return id ? data_->tokenizer.decode({&*id, 1}) : std::string("none");
  };
  record.set("data", "token before documents", text_of(ends.begin));
  record.set("data", "token after documents", text_of(ends.end));
  record.set("data", "special tokens in text", std::string(name_of(recipe().data.special_tokens)));
  record.set("plan", "steps", recipe().total_steps());
  record.set("plan", "tokens", plan_.tokens);
  record.set("plan", "predicted bytes", plan_.predicted_bytes);
  record.set("plan", "machine GFLOP/s", plan_.peak_gflops);
  record.set("plan", "machine GB/s", plan_.read_gbs);
  for (const PhasePlan& s : plan_.phases)
    record.set("plan", s.name + " GFLOP per step", s.levels.front().step_flops * 1e-9);
  record.set("kernels", "fingerprint", kernel_set_of(recipe()));
  record.set_config(to_node(recipe()));
  record_start(fs_, recipe().run.folder, record, this_start(), renamed_recipe_keys());
}

bool Trainer::log_row(const MetricRow& row) {
  const bool due = log_->add(row, monotonic_seconds());
  const std::string line = step_line(row, recipe().total_steps(), log_->left(step()));
  log::set_status(due ? "" : line);
  if (!due) return false;
  log::info("{}", line);
  publish_snapshot(row);
  return true;
}

void Trainer::publish_snapshot(std::optional<MetricRow> row) {
  if (page_ == nullptr || !leads()) return;
  RunSnapshot now{.step = step(), .total_steps = recipe().total_steps(), .row = std::move(row)};
  if (now.row) {
    now.left_seconds = log_->left(step());
    now.step_gflop = level_plan().step_flops * 1e-9;
    now.peak_gflops = plan_.peak_gflops;
  }
  if (newest_) {
    now.checkpoint_step = newest_->step;
    const auto stamp = fs_.stamp(newest_->path + "/" + kManifestFile);
    now.checkpoint_wall = stamp ? static_cast<double>(stamp->modified_ns) * 1e-9 : wall_seconds();
  }
  page_->publish(std::move(now));
}

void Trainer::record_predictions(bool says) {
  std::vector<std::string> names;
  for (const PhaseConfig& s : recipe().phases) names.push_back(s.name);
  std::vector<Prediction> found = accuracy_.compare(plan_, names, ranks_.groups().world());
  if (!leads()) return;
  if (says) {
    const std::vector<Prediction> shown = worst_of_each(found);
    for (const std::string& line : describe(shown)) log::info("{}", line);
    // A step's time also follows from what else the machine does: told, not warned of.
    for (const bool of_memory : {true, false}) {
      std::vector<Prediction> some;
      std::copy_if(found.begin(), found.end(), std::back_inserter(some),
                   [&](const Prediction& p) { return (p.what == Predicted::memory) == of_memory; });
      const std::string off = warning_of(some);
      if (!off.empty()) of_memory ? log::warn("{}", off) : log::info("{}", off);
    }
  }
  try {
    set_predictions(fs_, recipe().run.folder, std::move(found));
    write_report(fs_, recipe().run.folder, false);
  } catch (const Error& e) {
    if (!says) throw;
    log::warn("the record of the run lacks its end: {}", e.what());  // all is saved: not worth the run
  }
}

}  // namespace ingot
