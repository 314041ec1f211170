// See trainer.h.
#include "train/trainer.h"

#include <atomic>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "base/progress.h"
#include "base/standard_streams.h"
#include "comm/agree.h"
#include "report/report.h"
#include "train/group_check.h"
#include "train/phase_kind.h"
#include "train/rank_check.h"
#include "train/resume_check.h"
#include "train/run_failure.h"
#include "train/run_folder.h"
#include "train/run_samples.h"
#include "train/step_log.h"

namespace ingot {
namespace {

std::atomic<bool> interrupt_asked{false};

std::string nothing() {
  return {};
}

}  // namespace

void Trainer::interrupt() {
  interrupt_asked = true;
  drop_stalled(true);
}

bool Trainer::interrupted() {
  return interrupt_asked;
}

Trainer::Trainer(FileSystem& fs, const Recipe& given, const StartOptions& start, World* world,
                 const Rewind& rewind)
    : fs_(fs), ranks_(given, world) {
  interrupt_asked = false;
  drop_stalled(false);
  const int64_t process_bytes = resident_bytes();
  const Recipe recipe = ranks_.fitted(given);
  open_folder(recipe, start.mode);
  ranks_.world().set_flight_folder(recipe.run.folder);
  data_.emplace(prepare_data(fs_, recipe, start.data));
  require_same_data(ranks_.groups().world(), *data_);
  const Recipe complete = with_vocabulary(recipe, *data_);
  check_layout(complete);
  engine_ = std::make_unique<TrainEngine>(complete, ranks_);
  plan_ = preflight(*engine_, &*data_, process_bytes);
  accuracy_.prepared();
  require_fit(plan_);
  engine_->set_memory_policy(plan_.recompute, plan_.offload, recipe.run.folder);
  prompts_ = sample_prompts(engine_->recipe(), *data_);
  tasks_ = std::make_unique<RunTasks>(fs_, *engine_);
  if (leads() && recipe.model.moe.sees_future_tokens())
    log::warn(
        "moe.selection = expert_choice: a token's experts depend on later tokens, so the losses of this run "
        "are "
        "lower than a causal model's; metrics, log and report mark them");
  state_ = std::make_unique<RunState>(fs_, *engine_, *data_);
  restore(rewind, start.accept_kernels);
  if (!rewind.of_run.empty())
    digests_ = std::make_unique<RunDigests>(fs_, *engine_, recipe.run.folder, step());
}

Trainer::~Trainer() = default;

void Trainer::check_layout(const Recipe& recipe) const {
  const std::string unchecked = agree(&ranks_.groups().world(), nothing, [&](const auto&) {
    return check_ranks(recipe, ranks_.world().ranks());
  });
  if (leads() && !unchecked.empty()) log::info("not checked before the first step: {}", unchecked);
}

void Trainer::open_folder(const Recipe& recipe, StartMode start) {
  const std::string& folder = recipe.run.folder;
  Communicator& world = ranks_.groups().world();
  agree(&world, nothing, [&](const auto&) {
    fs_.create_folders(folder);
    lock_ = std::make_unique<FolderLock>(folder, "run");
    if (start == StartMode::fresh && fs_.exists(folder + "/" + run_files::kRecord))
      throw Error(fmt::format("'{}' already holds a run", folder),
                  "resume it (without --fresh), or choose another --run.folder, or delete the folder");
    return nothing();
  });
  require_one_folder(world, fs_, folder);
}

std::optional<CheckpointReader> Trainer::newest_checkpoint() const {
  const std::string checkpoints = recipe().run.folder + "/" + run_files::kCheckpoints;
  std::optional<CheckpointReader> newest;
  const std::string path = agree(&ranks_.groups().world(), nothing, [&](const auto&) {
    newest = CheckpointReader::open_newest(fs_, checkpoints);
    if (!newest) require_new_run(fs_, recipe());
    return newest ? newest->path() : nothing();
  });
  if (!leads() && !path.empty()) newest = CheckpointReader::open(fs_, path, Verify::structure);
  return newest;
}

/// For --from: the newest checkpoint of the step; without `rewound` not one that a return to that step made.
CheckpointReader Trainer::checkpoint_of(int64_t step, const std::string& run, bool with_rewound) const {
  const std::string checkpoints = run + "/" + run_files::kCheckpoints;
  std::optional<CheckpointReader> found;
  const std::string path = agree(&ranks_.groups().world(), nothing, [&](const auto&) {
    std::string steps;
    for (const CheckpointPlace& c : list_checkpoints(fs_, checkpoints)) {
      steps += fmt::format("{}{}", steps.empty() ? "" : ", ", c.step);
      if (c.step != step) continue;
      CheckpointReader reader = CheckpointReader::open(fs_, c.path);
      const std::vector<Rewound> rewound = SavedRun::of(reader).rewound;
      if (!with_rewound && !rewound.empty() && rewound.back().to_step == step) continue;
      found.emplace(std::move(reader));
      return found->path();
    }
    throw Error(fmt::format("'{}' has no complete checkpoint of step {}", checkpoints, step),
                steps.empty() ? "it has none" : "it has those of steps " + steps);
  });
  return found ? std::move(*found) : CheckpointReader::open(fs_, path, Verify::structure);
}

void Trainer::restore(const Rewind& rewind, bool accept_kernels) {
  const int64_t total = recipe().total_steps();
  if (rewind.from && *rewind.from >= total)
    throw Error(fmt::format("--from {}: the run ends at step {}", *rewind.from, total),
                "name the step of an earlier checkpoint");
  const bool replays = !rewind.of_run.empty();
  if (replays && *rewind.from == 0) return state_->begin();
  const auto reader =
      rewind.from ? checkpoint_of(*rewind.from, replays ? rewind.of_run : recipe().run.folder, replays)
                  : newest_checkpoint();
  if (!reader) return state_->begin();
  require_same_run(*reader, recipe(), data_->tokenizer.content_hash(), accept_kernels, leads());
  if (const std::string then = SavedRun::of(*reader).kernels; then != kernel_set_of(recipe()))
    accepted_kernels_ = then;
  state_->restore(*reader);
  newest_ = {reader->path(), reader->step()};
  if (!rewind.from || replays) return;
  state_->rewind(rewind.skip_batches);
  rewound_ = true;
  if (leads())
    log::info("going back to '{}'{}", reader->path(),
              rewind.skip_batches > 0 ? fmt::format(" and leaving out {} batches", rewind.skip_batches) : "");
}

void Trainer::open_checkpoints() {
  CheckpointWriterOptions options;
  options.retention.keep_last = static_cast<int>(recipe().checkpoint.keep_last);
  options.require_finite = true;
  options.group = &ranks_.groups().world();
  checkpoints_ =
      std::make_unique<CheckpointWriter>(fs_, recipe().run.folder + "/" + run_files::kCheckpoints, options);
  checkpoints_->prepare(state_->save_request(""), saves_to_come());
  if (!rewound_) return;
  // Before the records of the steps that are given up go: a crash must leave one story or the other.
  checkpoints_->save(state_->save_request(""));
  const std::optional<SaveReport> saved = checkpoints_->wait();
  newest_ = {saved.value().path, saved.value().step};
  rewound_ = false;
}

void Trainer::open_outputs() {
  const std::string& folder = recipe().run.folder;
  open_checkpoints();
  digests_ = std::make_unique<RunDigests>(fs_, *engine_, folder, step());
  rank_log_ = std::make_unique<RankLog>(fs_, ranks_.groups().world(), folder, step());
  if (!leads()) return;
  keep_with_run(fs_, recipe(), *data_);
  drop_samples_after(fs_, folder + "/" + run_files::kSamples, measured());
  metrics_ = std::make_unique<MetricsWriter>(fs_, folder + "/" + run_files::kMetrics, measured());
  events_ = std::make_unique<EventWriter>(fs_, folder + "/" + run_files::kEvents, measured(), wall_seconds());
  live_report_ = std::make_unique<LiveReport>(fs_, folder);
  write_record();
}

TrainResult Trainer::run() {
  started_ = monotonic_seconds();
  const int64_t total = recipe().total_steps();
  result_.step = step();
  resume_clock();
  result_.finished = finished() || clock_.ended_by(recipe().phases) != nullptr;
  if (result_.finished) return result_;
  open_outputs();
  if (step() > 0 && leads()) log::info("resuming at step {} of {}", step(), total);
  log_.emplace(recipe().run.log_every, total, started_);
  publish_snapshot(std::nullopt);
  bool continues = agree_to_continue(interrupted(), false).continues;
  if (continues && state_->unmeasured()) {
    enter(StepPart::records);
    MetricRow row = *state_->unmeasured();
    continues = after_step(row, true);
  }
  while (step() < total && continues) {
    begin_steps();
    continues = run_batch_size();
  }
  log::set_status("");
  finish_save();
  if (leads()) metrics_->sync();
  rank_log_->sync();
  const bool ended = clock_.ended_by(recipe().phases) != nullptr;
  record_predictions(true);
  result_.finished = finished() || ended;
  result_.step = step();
  result_.seconds = monotonic_seconds() - started_;
  return result_;
}

void Trainer::resume_clock() {
  const std::string metrics = recipe().run.folder + "/" + run_files::kMetrics;
  clock_.restore(agree(&ranks_.groups().world(), nothing, [&](const auto&) {
    std::vector<MetricRow> rows;
    if (step() > 0 && fs_.exists(metrics)) rows = read_metrics(fs_, metrics);
    std::erase_if(rows, [&](const MetricRow& row) { return row.step > measured(); });
    if (state_->unmeasured()) rows.push_back(*state_->unmeasured());
    return TrainingClock::state_of(rows);
  }));
}

bool Trainer::ends_at_target(MetricRow& row) {
  if (!clock_.reaches(phase(), row)) return false;
  if (leads())
    log::info("step {}: the validation loss of {} reached {} after {} of training", step(),
              phase().target_source, phase().target_loss, format_seconds(clock_.seconds()));
  return phase().target_ends;
}

void Trainer::begin_steps() {
  if (digests_) digests_->forget_rest();
  if (state_->enter_next_phase() && leads()) log::info("phase '{}'", phase().name);
  if (step() == state_->sampler().first_step()) {
    const std::string measured = tasks_->require_gate(*engine_, *data_, state_->sampler().phase());
    if (leads() && !measured.empty()) log::info("phase '{}' begins: {}", phase().name, measured);
  }
  if (state_->change_batch() && leads())
    log::info("step {}: {} sequences per step from now on", step(),
              phase().batch_at(state_->sampler().level()));
}

bool Trainer::run_batch_size() {
  const PhaseSampler& sampler = state_->sampler();
  bool continues = true;
  while (step() < sampler.end_step() && !sampler.change_due() && continues) {
    MetricRow row = train_step();
    continues = after_step(row);
  }
  return continues;
}

void Trainer::run_steps(int64_t steps) {
  const PhaseSampler& sampler = state_->sampler();
  for (; steps > 0 && step() < sampler.end_step() && !sampler.change_due(); --steps) train_step();
}

StepOptions Trainer::step_options() const {
  const PhaseSampler& sampler = state_->sampler();
  return engine_->options(sampler.phase(), sampler.micro_batch());
}

MetricRow Trainer::train_step() {
  enter(StepPart::data);
  const double asked = monotonic_seconds();
  const data::Batch batch = state_->source().next(step());
  const double begin = monotonic_seconds(), wait_seconds = begin - asked;
  ranks_.world().set_step(step() + 1);
  profile_.clear();
  StepCall call{.options = step_options(), .lr = state_->learning_rate(), .observer = observer_};
  if (digests_) begin_digests(batch, call);
  call.options.profile = &profile_;
  call.judge = [&](const StepStats& stats, const GradNorm& norm) {
    if (digests_) check_digests(batch, call);
    judge(stats, batch, norm);
  };
  const double roofline_seconds = level_plan().roofline_seconds;
  double waited = 0;  // for other ranks
  const StepOutcome outcome = [&] {
    const WaitListener listener([&](const WaitSpan& wait) { waited += wait.end - wait.begin; });
    return engine_->step(batch, call);
  }();
  const double seconds = monotonic_seconds() - begin + wait_seconds;
  require_finite_weights(call.lr);
  enter(StepPart::records);
  if (digests_) digests_->keep_rest();
  state_->count_step(batch, outcome.stats.loss());
  const DoneStep done{step(),
                      state_->tokens(),
                      call.lr,
                      seconds,
                      wait_seconds,
                      roofline_seconds,
                      std::exchange(save_seconds_, std::nullopt)};
  const double busy = seconds - wait_seconds - waited;
  if (status_ != nullptr) {
    // Stages of a pipeline do different work: a longer time does not make a slow rank.
    const double shown = recipe().parallel.pipeline == 1 ? busy : 0;
    status_->done({step(), seconds, wait_seconds, shown, state_->watch().spike_steps() > 0});
  }
  if (rank_log_) rank_log_->add(busy, waited, wait_seconds);
  MetricRow row;
  row.step = step();
  if (leads()) {  // who alone writes it
    std::vector<std::string> sources;
    for (const data::Dataset& source : data_->sources) sources.push_back(source.name());
    row = step_row(done, batch, outcome, profile_, *engine_, sources);
  }
  state_->source().observe(outcome, row);
  clock_.count(seconds, row);
  if (state_->sampler().level() == 0) accuracy_.count_step(state_->sampler().phase(), seconds);
  return row;
}

void Trainer::judge(const StepStats& stats, const data::Batch& batch, const GradNorm& norm) {
  const int64_t step = this->step() + 1;
  if (stats.valid == 0) fail("step {}: the batch has no valid target (all masked)", step);
  if (!std::isfinite(stats.loss()))
    diagnose(batch, fmt::format("the loss of step {} is {}", step, stats.loss()));
  if (!norm.finite()) diagnose(batch, fmt::format("step {}: {}", step, engine_->describe_bad_norm(norm)));
  if (!kind_of(phase()).watches_loss) return;
  LossWatch& watch = state_->watch();
  switch (watch.observe(step, stats.loss(), norm.norm)) {
    case LossWatch::Verdict::fine:
      return;
    case LossWatch::Verdict::spike:
      if (leads())
        log::warn(
            "step {}: loss {:.4f} is a spike (recent mean {:.4f}, deviation {:.4f}); first samples of the "
            "batch: {}",
            step, stats.loss(), watch.mean(), watch.deviation(),
            batch.origins.empty() ? 0 : batch.origins.front().sample);
      return;
    case LossWatch::Verdict::diverged:
      stop_diverged(stats.loss());
    case LossWatch::Verdict::dead:
      throw RunError(
          FailureKind::diverged,
          fmt::format("the gradient has been 0 for {} steps, the loss is {:.4f} at step {}: the model "
                      "does not learn any more",
                      watch.dead_steps(), stats.loss(), step),
          "weights were driven where nothing changes the loss, or start there; " + way_back());
  }
}

void Trainer::stop_diverged(double loss) {
  const LossWatch& watch = state_->watch();
  if (digests_) digests_->require_agreement(step());
  end_save();
  const std::string checkpoints = recipe().run.folder + "/" + run_files::kCheckpoints;
  const std::string from = agree(&ranks_.groups().world(), nothing, [&](const auto&) {
    for (const CheckpointPlace& c : list_checkpoints(fs_, checkpoints))
      if (c.step < watch.first_spike()) return std::to_string(c.step);
    return nothing();
  });
  const std::string what =
      fmt::format("the loss has been far above its mean ({:.4f}) for {} steps; it is {:.4f} at step {}",
                  watch.mean(), watch.spike_steps(), loss, step() + 1);
  const std::string change = "lower the learning rate, clip harder or raise health.spike_patience";
  if (from.empty())
    throw RunError(FailureKind::diverged, what, change + ", and start again: no checkpoint is from before");
  throw RunError(FailureKind::diverged, what,
                 fmt::format("go back to before it and leave its batches out:\n  {}\nor {}, and resume",
                             rewind_command(std::stoll(from)), change),
                 watch.first_spike());
}

bool Trainer::any_rank(bool says) const {
  int32_t vote = says;
  Communicator& world = ranks_.groups().world();
  const Tensor t = Tensor::of(&vote, {1});
  if (world.size() > 1) world.all_reduce(t, t).wait();
  return vote > 0;
}

/// An update that overflows is named at its step, not at the next one's loss, and is never saved.
void Trainer::require_finite_weights(double lr) {
  const std::string bad = engine_->describe_bad_weight();
  if (!any_rank(!bad.empty())) return;
  if (digests_) digests_->require_agreement(step() + 1);
  throw RunError(
      FailureKind::not_finite,
      fmt::format("the update of step {} (learning rate {:.3g}) left weights that are not finite: {}",
                  step() + 1, lr, bad.empty() ? "other ranks hold them" : bad),
      way_back());
}

/// Repeats the passes with every op checked: the weights are still those that failed, and kernels are pure.
void Trainer::diagnose(const data::Batch& batch, const std::string& what) {
  if (digests_) digests_->require_agreement(step());
  StepOptions options = step_options();
  options.check_finite = true;
  std::string cause = "running the step again with checks found nothing; suspect the hardware";
  try {
    engine_->forward_backward(batch, options);
  } catch (const Error& e) {
    cause = e.what();
  }
  std::string rows = fmt::format("{} rows of phase '{}'", batch.rows, phase().name);
  if (!batch.origins.empty()) {
    const auto& origin = batch.origins.front();
    rows = fmt::format("samples {} .. {}, from source '{}'", origin.sample, batch.origins.back().sample,
                       data_->sources[static_cast<size_t>(origin.source)].name());
  }
  throw RunError(FailureKind::not_finite, fmt::format("{}\n{}\nbatch: {}", what, cause, rows), way_back());
}

Trainer::Agreement Trainer::agree_to_continue(bool stop, bool logged) {
  Communicator& world = ranks_.groups().world();
  int32_t votes[4] = {stop, checkpoints_->written(), leads() && folder_is_gone(), logged};
  const Tensor t = Tensor::of(votes, {4});
  if (world.size() > 1) world.all_reduce(t, t).wait();
  if (votes[2] > 0)
    throw Error(fmt::format("the run folder '{}' is gone: it was deleted or moved before the end of step {}",
                            recipe().run.folder, step()),
                "if it was moved, move it back; the same command then resumes");
  if (world.size() > 1 && votes[1] == world.size()) end_save();
  return {votes[0] == 0, votes[3] > 0};
}

bool Trainer::folder_is_gone() {
  if (lock_->in_place()) return false;
  const std::string& folder = recipe().run.folder;
  // A save that was under way may have made a folder of that name again.
  if (!fs_.exists(folder + "/" + run_files::kRecord)) return true;
  if (!std::exchange(lock_warned_, true))
    log::warn("'{}/run.lock' was removed or replaced: another program may now write to the same run", folder);
  return false;
}

std::string Trainer::end_of_phase() const {
  return fmt::format("end of phase '{}'", phase().name);
}

}  // namespace ingot
