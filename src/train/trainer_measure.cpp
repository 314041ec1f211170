// What follows a step: validation, tasks, records, samples. An interrupt ends validation and tasks, which can
// be minutes, at once; the step is saved without them, and the run that resumes does them first. See
// trainer.h.
#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "train/trainer.h"
#include "train/validation.h"

namespace ingot {

bool Trainer::due(int64_t every) const {
  return ends_run() || (every > 0 && step() % every == 0);
}

bool Trainer::saves() const {
  return ends_phase() || due(recipe().checkpoint.every);
}

bool Trainer::after_step(MetricRow& row, bool resumed) {
  if (!measure(row)) {
    save_unmeasured(resumed);
    return false;
  }
  const bool at_target = ends_at_target(row);
  bool logged = false;
  if (leads()) {
    metrics_->write(row);
    events_->write(row);
    logged = log_row(row);
  }
  const Agreement agreed = agree_to_continue(interrupted() || at_target, logged);
  const bool continues = agreed.continues;
  if (!resumed) {
    digests_->end_step(step(), saves() || !continues);
    if (agreed.logged || saves() || !continues) rank_log_->end_window(step());
  }
  if (leads()) live_report_->update();
  if (due(recipe().samples.every)) write_samples();
  // Before the last save, after which the run counts as finished and a resume touches nothing; run() adds
  // what that save measures.
  if (ends_run() || at_target) {
    if (leads()) metrics_->sync();
    record_predictions(false);
  }
  if (ends_phase())
    save(end_of_phase());
  else if (!continues || due(recipe().checkpoint.every))
    save(at_target ? fmt::format("target of phase '{}'", phase().name) : "");
  return continues;
}

bool Trainer::measure(MetricRow& row) {
  MetricRow filled = row;
  if (!validate_sources(filled) || !run_tasks(filled)) {
    state_->unmeasured() = row;
    return false;
  }
  row = std::move(filled);
  state_->unmeasured().reset();
  return true;
}

bool Trainer::validate_sources(MetricRow& row) {
  if (!due(recipe().evaluation.every)) return true;
  const bool complete = ends_run();
  const auto stops = [&] { return any_rank(interrupted()); };
  if (stops() || !state_->source().validate(row, complete, stops)) return false;
  for (size_t i = 0; i < data_->sources.size(); ++i) {
    const data::Dataset& source = data_->sources[i];
    if (!source.has_split("validation") || recipe().data.sources[i].preferences) continue;
    const auto score =
        validate(*engine_, source, phase(), complete ? 0 : recipe().evaluation.max_tokens, stops);
    if (!score) return false;
    row.set(fmt::format("val/{}/loss", source.name()), score->loss);
    row.set(fmt::format("val/{}/bits_per_byte", source.name()), score->bits_per_byte);
    row.set(fmt::format("val/{}/tokens", source.name()), score->tokens);
    result_.validation[source.name()] = score->loss;
  }
  return true;
}

bool Trainer::run_tasks(MetricRow& row) {
  const size_t phase = state_->sampler().phase();
  const bool asks = tasks_->due(phase, step(), saves(), ends_run());
  // Tasks and the next phase's replies need some.
  if (ends_phase() && (asks || !ends_run())) engine_->release_memory();
  if (!asks) return true;
  const auto scores = tasks_->run(*engine_, *data_, phase, row, [&] { return any_rank(interrupted()); });
  if (!scores) return false;
  if (leads()) log::info("step {}: {}", step(), *scores);
  return_unused_memory();  // what the tasks took would add to the memory of later steps
  return true;
}

void Trainer::save_unmeasured(bool resumed) {
  if (leads()) log::info("step {} will be validated when the run resumes", step());
  if (resumed) return;  // as it was saved
  digests_->end_step(step(), true);
  rank_log_->end_window(step());
  save("");
}

void Trainer::write_samples() {
  result_.samples.clear();
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const auto text = continue_sample(*engine_, *data_, prompts_[i], i);
    if (!text) continue;
    result_.samples.push_back({step(), prompts_[i].text, *text});
    if (!leads()) continue;
    append_sample(fs_, recipe().run.folder + "/" + run_files::kSamples, result_.samples.back());
    events_->write_text(step(), wall_seconds(), fmt::format("sample/{}", i), prompts_[i].text + *text);
  }
}

}  // namespace ingot
