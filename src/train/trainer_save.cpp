// Saving in a run, and what there is to go back to when it fails. See trainer.h.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/invocation.h"
#include "base/log.h"
#include "train/run_failure.h"
#include "train/trainer.h"

namespace ingot {
namespace {

constexpr int kFailedSaves = 3;  // in a row, that end a run

}  // namespace

/// Saves from now to the end of the run.
int64_t Trainer::saves_to_come() const {
  const int64_t every = recipe().checkpoint.every;
  int64_t saves = 0, end = 0;
  for (const PhaseConfig& p : recipe().phases) {
    end += p.steps;
    if (end > measured() && (every == 0 || end % every != 0)) ++saves;
  }
  return saves + (every > 0 ? end / every - measured() / every : 0);
}

void Trainer::save(const std::string& protection) {
  if (leads()) metrics_->sync();
  digests_->sync();
  rank_log_->sync();
  enter(StepPart::save);
  const double begin = monotonic_seconds();
  end_save();
  saving_step_ = step();
  try {
    checkpoints_->save(state_->save_request(protection));
  } catch (const Error& e) {
    count_failed_save(step(), e);
  }
  save_seconds_ = monotonic_seconds() - begin;
  accuracy_.count_pause(*save_seconds_);
  if (status_ != nullptr) status_->saved(*save_seconds_);
}

std::pair<double, SaveReport> Trainer::save_beside_steps(int64_t steps) {
  if (!checkpoints_) open_checkpoints();
  const double begin = monotonic_seconds();
  checkpoints_->save(state_->save_request(""));
  const double pause = monotonic_seconds() - begin;
  run_steps(steps);
  return {pause, checkpoints_->wait().value()};
}

void Trainer::end_save() {
  if (!checkpoints_) return;
  try {
    const std::optional<SaveReport> report = checkpoints_->wait();
    if (!report || (newest_ && newest_->path == report->path)) return;
    accuracy_.count_save(*report);
    newest_ = {report->path, report->step};
    failed_saves_ = 0;
  } catch (const NotFinite& e) {
    throw RunError(FailureKind::not_finite, e.what(), way_back());
  } catch (const Error& e) {
    count_failed_save(saving_step_, e);
  }
}

/// A failure is the same on all ranks.
void Trainer::count_failed_save(int64_t step, const Error& error) {
  if (++failed_saves_ < kFailedSaves) {
    if (leads())
      log::warn("the checkpoint of step {} was not written: {}{}", step, error.what(),
                error.hint().empty() ? "" : "; " + error.hint());
    return;
  }
  throw RunError(FailureKind::storage,
                 fmt::format("{} checkpoints in a row were not written, the last of step {}: {}",
                             kFailedSaves, step, error.what()),
                 newest_ ? fmt::format("mend this and run the same command: it resumes from step {} ('{}')",
                                       newest_->step, newest_->path)
                         : "mend this and start again: no checkpoint was written");
}

void Trainer::finish_save() {
  end_save();
  if (newest_ && newest_->step == step()) return;
  const bool ended = step() == state_->sampler().end_step() && !state_->unmeasured();
  checkpoints_->save(state_->save_request(ended ? end_of_phase() : ""));
  if (const std::optional<SaveReport> report = checkpoints_->wait()) accuracy_.count_save(*report);
}

/// What there is to go back to, for hints.
std::string Trainer::way_back() {
  try {
    end_save();
  } catch (const Error&) {  // the error that asks is the one to show
  }
  if (!newest_) return "there is no checkpoint yet: lower the learning rate and start again";
  return fmt::format(
      "the newest checkpoint is '{}': lower the learning rate and resume, or leave the batches "
      "since then out:\n  {}",
      newest_->path, rewind_command(newest_->step));
}

std::string Trainer::rewind_command(int64_t from_step) const {
  const int ranks = ranks_.world().ranks();
  return fmt::format("ingot {}run {} --from {} --skip-batches {}",
                     ranks > 1 ? fmt::format("launch -n {} -- ", ranks) : "", shell_word(recipe().run.folder),
                     from_step, step() + 1 - from_step);
}

}  // namespace ingot
