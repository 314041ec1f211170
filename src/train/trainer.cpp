// See trainer.h.
#include "train/trainer.h"

#include <atomic>
#include <cmath>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "comm/agree.h"
#include "ops/registry.h"
#include "report/report.h"
#include "train/group_check.h"
#include "train/rank_check.h"
#include "train/resume_check.h"
#include "train/run_samples.h"
#include "train/step_log.h"
#include "train/validation.h"

namespace ingot {
namespace {

std::atomic<bool> interrupted{false};

std::string nothing() {
  return {};
}

}  // namespace

void Trainer::interrupt() {
  interrupted = true;
}

Trainer::Trainer(FileSystem& fs, const Recipe& given, StartMode start, World* world)
    : fs_(fs), ranks_(given, world) {
  interrupted = false;
  const Recipe recipe = ranks_.fitted(given);
  open_folder(recipe, start);
  ranks_.world().set_flight_folder(recipe.run.folder);
  data_.emplace(prepare_data(fs_, recipe));
  require_same_data(ranks_.groups().world(), *data_);
  const Recipe complete = with_vocabulary(recipe, *data_);
  check_layout(complete);
  engine_ = std::make_unique<TrainEngine>(complete, ranks_);
  plan_ = preflight(*engine_, &*data_);
  require_fit(plan_);
  engine_->set_memory_policy(plan_.recompute, plan_.offload, recipe.run.folder);
  prompts_ = sample_prompts(engine_->recipe(), *data_);
  state_ = std::make_unique<RunState>(*engine_, *data_);
  if (const auto newest = newest_checkpoint()) {
    require_same_run(*newest, engine_->recipe(), data_->tokenizer.content_hash(), leads());
    state_->restore(*newest);
  } else {
    state_->begin(fs_);
  }
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
    if (!newest) require_no_checkpoints(fs_, checkpoints);
    return newest ? newest->path() : nothing();
  });
  if (!leads() && !path.empty()) newest = CheckpointReader::open(fs_, path, Verify::structure);
  return newest;
}

void Trainer::open_outputs() {
  const std::string& folder = recipe().run.folder;
  CheckpointWriterOptions options;
  options.retention.keep_last = static_cast<int>(recipe().checkpoint.keep_last);
  options.group = &ranks_.groups().world();
  checkpoints_ = std::make_unique<CheckpointWriter>(fs_, folder + "/" + run_files::kCheckpoints, options);
  if (!leads()) return;
  drop_samples_after(fs_, folder + "/" + run_files::kSamples, step());
  metrics_ = std::make_unique<MetricsWriter>(fs_, folder + "/" + run_files::kMetrics, step());
  events_ = std::make_unique<EventWriter>(fs_, folder + "/" + run_files::kEvents, step(), wall_seconds());
  live_report_ = std::make_unique<LiveReport>(fs_, folder);
  write_record();
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
  record.set("kernels", "fingerprint", kernel_set_fingerprint());
  record.set_config(to_node(recipe()));
  write_run_record(fs_, recipe().run.folder, record);
}

TrainResult Trainer::run() {
  started_ = monotonic_seconds();
  const int64_t total = recipe().total_steps();
  result_.step = step();
  result_.finished = step() >= total;
  if (result_.finished) return result_;
  open_outputs();
  if (step() > 0 && leads()) log::info("resuming at step {} of {}", step(), total);
  log_.emplace(recipe().run.log_every, total, started_);
  bool continues = agree_to_continue(interrupted);
  while (step() < total && continues) {
    begin_steps();
    continues = run_batch_size();
  }
  log::set_status("");
  finish_save();
  if (leads()) metrics_->sync();
  if (leads() && step() < total) write_report(fs_, recipe().run.folder, false);
  result_.finished = step() == total;
  result_.step = step();
  result_.seconds = monotonic_seconds() - started_;
  return result_;
}

void Trainer::begin_steps() {
  if (state_->enter_next_phase() && leads()) log::info("phase '{}'", phase().name);
  PhaseSampler& sampler = state_->sampler();
  if (!sampler.change_due()) return;
  sampler.change_batch(step());
  if (leads())
    log::info("step {}: {} sequences per step from now on", step(), phase().batch_at(sampler.level()));
}

bool Trainer::run_batch_size() {
  const PhaseSampler& sampler = state_->sampler();
  // What a loader prefetches must have the batch size of the step that takes it.
  data::PrefetchLoader loader([&](int64_t step) { return sampler.batch(step); }, step());
  bool continues = true;
  while (step() < sampler.end_step() && !sampler.change_due() && continues) {
    enter(StepPart::data);
    const double waited = loader.waited_seconds();
    const data::Batch batch = loader.next();
    MetricRow row = train_step(batch, loader.waited_seconds() - waited);
    continues = after_step(row);
  }
  return continues;
}

void Trainer::run_steps(int64_t steps) {
  const PhaseSampler& sampler = state_->sampler();
  data::PrefetchLoader loader([&](int64_t step) { return sampler.batch(step); }, step());
  for (; steps > 0 && step() < sampler.end_step() && !sampler.change_due(); --steps) {
    enter(StepPart::data);
    const double waited = loader.waited_seconds();
    const data::Batch batch = loader.next();
    train_step(batch, loader.waited_seconds() - waited);
  }
}

StepOptions Trainer::step_options() const {
  const PhaseSampler& sampler = state_->sampler();
  return engine_->options(sampler.phase(), sampler.micro_batch());
}

MetricRow Trainer::train_step(const data::Batch& batch, double wait_seconds) {
  const double begin = monotonic_seconds();
  ranks_.world().set_step(step() + 1);
  profile_.clear();
  StepCall call{.options = step_options(), .lr = state_->learning_rate(), .observer = observer_};
  call.options.profile = &profile_;
  call.judge = [&](const StepStats& stats, const GradNorm& norm) { judge(stats, batch, norm); };
  const double roofline_seconds = level_plan().roofline_seconds;
  const StepOutcome outcome = engine_->step(batch, call);
  const double seconds = monotonic_seconds() - begin + wait_seconds;
  enter(StepPart::records);
  state_->count_step(batch, outcome.stats.loss());
  std::vector<std::string> sources;
  for (const data::Dataset& source : data_->sources) sources.push_back(source.name());
  return step_row({step(), state_->tokens(), call.lr, seconds, wait_seconds, roofline_seconds,
                   std::exchange(save_seconds_, std::nullopt)},
                  batch, outcome, profile_, *engine_, sources);
}

bool Trainer::after_step(MetricRow& row) {
  const bool last = step() == recipe().total_steps();
  const auto due = [&](int64_t every) { return last || (every > 0 && step() % every == 0); };
  if (due(recipe().evaluation.every)) validate_sources(row, last);
  if (leads()) {
    metrics_->write(row);
    events_->write(row);
    log_row(row);
    live_report_->update();
  }
  if (due(recipe().samples.every)) write_samples();
  const bool continues = agree_to_continue(interrupted);
  // Before the last save, after which the run counts as finished and is never touched again.
  if (last && leads()) {
    metrics_->sync();
    write_report(fs_, recipe().run.folder, false);
  }
  const int64_t every = recipe().checkpoint.every;
  if (step() == state_->sampler().end_step())
    save(end_of_phase());
  else if (!continues || (every > 0 && step() % every == 0))
    save("");
  return continues;
}

void Trainer::judge(const StepStats& stats, const data::Batch& batch, const GradNorm& norm) {
  const int64_t step = this->step() + 1;
  if (stats.valid == 0) fail("step {}: the batch has no valid target (all masked)", step);
  if (!std::isfinite(stats.loss()))
    diagnose(batch, fmt::format("the loss of step {} is {}", step, stats.loss()));
  if (!norm.finite()) diagnose(batch, fmt::format("step {}: {}", step, engine_->describe_bad_norm(norm)));
  LossWatch& watch = state_->watch();
  switch (watch.observe(stats.loss())) {
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
      throw Error(
          fmt::format("the loss has been far above its mean ({:.4f}) for {} steps; it is {:.4f} at step {}",
                      watch.mean(), watch.spike_steps(), stats.loss(), step),
          "lower the learning rate or clip harder and resume from the last checkpoint, or raise "
          "health.spike_patience");
  }
}

/// Repeats the passes with every op checked: the weights are still those that failed, and kernels are pure.
void Trainer::diagnose(const data::Batch& batch, const std::string& what) {
  StepOptions options = step_options();
  options.check_finite = true;
  std::string cause = "running the step again with checks found nothing; suspect the hardware";
  try {
    engine_->forward_backward(batch, options);
  } catch (const Error& e) {
    cause = e.what();
  }
  const auto& origin = batch.origins.front();
  throw Error(
      fmt::format("{}\n{}\nbatch: samples {} .. {}, from source '{}'", what, cause, origin.sample,
                  batch.origins.back().sample, data_->sources[static_cast<size_t>(origin.source)].name()),
      "the last checkpoint is intact: lower the learning rate, look at that batch, or change the seed, and "
      "resume");
}

void Trainer::validate_sources(MetricRow& row, bool complete) {
  for (const data::Dataset& source : data_->sources) {
    if (!source.has_split("validation")) continue;
    const ValidationScore score =
        validate(*engine_, source, phase(), complete ? 0 : recipe().evaluation.max_tokens);
    row.set(fmt::format("val/{}/loss", source.name()), score.loss);
    row.set(fmt::format("val/{}/bits_per_byte", source.name()), score.bits_per_byte);
    row.set(fmt::format("val/{}/tokens", source.name()), score.tokens);
    result_.validation[source.name()] = score.loss;
  }
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

void Trainer::log_row(const MetricRow& row) {
  const bool due = log_->add(row, monotonic_seconds());
  const std::string line = step_line(row, recipe().total_steps(), log_->left(step()));
  log::set_status(due ? "" : line);
  if (due) log::info("{}", line);
}

bool Trainer::agree_to_continue(bool stop) {
  Communicator& world = ranks_.groups().world();
  if (world.size() == 1) return !stop;
  int32_t votes[2] = {stop, checkpoints_->written()};
  const Tensor t = Tensor::of(votes, {2});
  world.all_reduce(t, t).wait();
  if (votes[1] == world.size()) try_commit();
  return votes[0] == 0;
}

std::string Trainer::end_of_phase() const {
  return fmt::format("end of phase '{}'", phase().name);
}

void Trainer::save(const std::string& protection) {
  if (leads()) metrics_->sync();
  enter(StepPart::save);
  const double begin = monotonic_seconds();
  try_to_save(protection);
  save_seconds_ = monotonic_seconds() - begin;
}

void Trainer::try_to_save(const std::string& protection) {
  const SaveRequest request = state_->save_request(protection);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      return checkpoints_->save(request);  // throws also for the save before this one
    } catch (const Error& e) {
      if (leads())
        log::warn("step {}: {} checkpoint was not written: {}", step(), attempt == 0 ? "the last" : "this",
                  e.what());
    }
  }
}

void Trainer::try_commit() {
  try {
    checkpoints_->wait();
  } catch (const Error& e) {
    if (leads()) log::warn("step {}: the last checkpoint was not written: {}", step(), e.what());
  }
}

void Trainer::finish_save() {
  try {
    const auto report = checkpoints_->wait();
    if (report && report->step == step()) return;
  } catch (const Error& e) {
    if (leads()) log::warn("step {}: the checkpoint was not written, trying again: {}", step(), e.what());
  }
  const bool ended = step() == state_->sampler().end_step();
  checkpoints_->save(state_->save_request(ended ? end_of_phase() : ""));
  checkpoints_->wait();
}

}  // namespace ingot
