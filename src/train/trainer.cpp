// See trainer.h: construction, the loop, one step.
#include "train/trainer.h"

#include <sys/resource.h>

#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "report/report.h"
#include "train/group_check.h"
#include "train/rank_logits.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

std::atomic<bool> interrupted{false};

int64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

/// A selection bias is frozen with its router.
bool router_trains(const ParameterTable& table, int64_t layer) {
  const std::string prefix = layer_prefix(layer) + "moe.router.";
  for (int i = 0; i < table.size(); ++i)
    if (table[i].trainable && table[i].name.starts_with(prefix)) return true;
  return false;
}

/// What the balance losses of the next step take for the load of the batch.
void keep_loads(const StepStats& stats, const Model& model) {
  for (const auto& [layer, counts] : stats.expert_counts) {
    const auto sum = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    float* load = model.router_load(layer).as<float>();
    for (size_t e = 0; e < counts.size() && sum > 0; ++e)
      load[e] = static_cast<float>(static_cast<double>(counts[e]) / sum);
  }
}

}  // namespace

void Trainer::interrupt() {
  interrupted = true;
}

Trainer::Trainer(FileSystem& fs, Recipe recipe, StartMode start, World* world)
    : fs_(fs), recipe_(std::move(recipe)), watch_(recipe_.health.spike_sigma, recipe_.health.spike_patience) {
  interrupted = false;
  join(world);
  open_folder(start);
  world_->set_flight_folder(recipe_.run.folder);
  data_.emplace(prepare_data(fs_, recipe_));
  require_same_data(groups_->world(), *data_);
  if (recipe_.model.vocab == 0) recipe_.model.vocab = data_->vocab;
  if (recipe_.model.vocab < data_->vocab)
    throw Error(
        fmt::format("model.vocab is {}, but the tokenizer has {} tokens", recipe_.model.vocab, data_->vocab),
        "set model.vocab = 0 to take the tokenizer's size");
  build_model();
  build_optimizer();
  build_balance();
  runner_ = std::make_unique<StepRunner>(*model_, *gradients_, step_ranks());
  plan_ = preflight(recipe_, *model_, &*data_, *gradients_, *optimizer_, owned_elements(), step_ranks());
  require_fit(plan_);
  policy_ = std::make_unique<NamedPolicy>(plan_.recompute, plan_.offload);
  if (policy_->offloads())
    tier_ = file_offload_store(recipe_.memory.offload_folder.empty() ? recipe_.run.folder
                                                                     : recipe_.memory.offload_folder);
  require_prompts();
  if (const auto newest = newest_checkpoint()) {
    restore(*newest);
  } else {
    start_weights();
    sampler_ = std::make_unique<PhaseSampler>(recipe_, *data_);
  }
  begin_phase();
}

Trainer::~Trainer() = default;

void Trainer::build_optimizer() {
  const ParameterTable& table = model_->decoder().table();
  OptimizerConfig config = recipe_.optimizer;
  std::vector<ParamView> views =
      optimizer_views(model_->weights(), *gradients_, groups_.get(), shards_.get());
  config.groups = groups_of_stage(std::move(config.groups), table, views);
  optimizer_ = std::make_unique<Optimizer>(std::move(config), std::move(views), recipe_.optimizer_run());
  if (recipe_.optimizer.qk_clip.threshold > 0) {
    ModelConfig part = recipe_.model;  // tensor ranks have whole heads
    part.heads /= groups_->tensor().size();
    part.kv_heads /= groups_->tensor().size();
    qk_layers_ =
        qk_clip_layers(part, optimizer_views(model_->weights(), *gradients_, groups_.get(), shards_.get()));
  }
}

void Trainer::build_balance() {
  const MoeConfig& moe = recipe_.model.moe;
  std::vector<BalanceView> views;
  if (moe.balance != BalanceRule::none)
    for (const int64_t layer : model_->decoder().moe_layers())
      views.push_back({Model::router_bias_name(layer), moe.experts, model_->router_bias(layer).numel(),
                       model_->router_bias(layer).as<float>(),
                       !router_trains(model_->decoder().table(), layer)});
  const BalanceConfig config{.rule = moe.balance, .rate = moe.balance_rate};
  balance_ = std::make_unique<BalanceController>(config, std::move(views));
}

void Trainer::begin_phase() {
  model_->set_rope_theta(recipe_.rope_theta_of(sampler_->phase()));
  set_window();
}

void Trainer::set_window() {
  model_->set_window(recipe_.window_at(sampler_->phase(), step_ - sampler_->first_step()));
}

StepOptions Trainer::step_options() const {
  StepOptions o;
  o.head = plan_.phases[sampler_->phase()].head;
  o.micro_batch = sampler_->micro_batch();
  o.z_coefficient = phase().z_coefficient;
  o.objective = find_objective(phase().objective);
  o.policy = policy_.get();
  o.tier = tier_.get();
  return o;
}

void Trainer::open_outputs() {
  const std::string& folder = recipe_.run.folder;
  CheckpointWriterOptions options;
  options.retention.keep_last = static_cast<int>(recipe_.checkpoint.keep_last);
  options.group = &groups_->world();
  checkpoints_ = std::make_unique<CheckpointWriter>(fs_, folder + "/" + run_files::kCheckpoints, options);
  if (!leads()) return;
  drop_samples_after(fs_, folder + "/" + run_files::kSamples, step_);
  metrics_ = std::make_unique<MetricsWriter>(fs_, folder + "/" + run_files::kMetrics, step_);
  events_ = std::make_unique<EventWriter>(fs_, folder + "/" + run_files::kEvents, step_, wall_seconds());
  write_record();
}

TrainResult Trainer::run() {
  started_ = monotonic_seconds();
  started_step_ = step_;
  const int64_t total = recipe_.total_steps();
  result_.step = step_;
  result_.finished = step_ >= total;
  if (result_.finished) return result_;
  open_outputs();
  if (step_ > 0 && leads()) log::info("resuming at step {} of {}", step_, total);
  bool stop = !agree_to_go_on(interrupted);
  while (step_ < total && !stop) {
    if (step_ >= sampler_->end_step()) {
      sampler_->advance();
      begin_phase();
      if (leads()) log::info("phase '{}'", phase().name);
    }
    if (sampler_->change_due()) {
      sampler_->change_batch(step_);
      if (leads())
        log::info("step {}: {} sequences per step from now on", step_, phase().batch_at(sampler_->level()));
    }
    const int64_t end = sampler_->end_step();
    // One loader per batch size: what it prefetches must have the size of the step that takes it.
    data::PrefetchLoader loader([this](int64_t step) { return sampler_->batch(step); }, step_);
    while (step_ < end && !sampler_->change_due() && !stop) {
      enter(RunPhase::data);
      const double waited = loader.waited_seconds();
      const data::Batch rows = loader.next();
      MetricRow row = train_step(rows, loader.waited_seconds() - waited);
      const bool last = step_ == total;
      const auto due = [&](int64_t every) { return last || (every > 0 && step_ % every == 0); };
      if (due(recipe_.evaluation.every)) validate(row, last);
      if (leads()) {
        metrics_->write(row);
        events_->write(row);
        log_line(row);
      }
      if (due(recipe_.samples.every)) sample();
      stop = !agree_to_go_on(interrupted);
      if (last &&
          leads()) {  // before the last save, after which the run counts as finished and is never touched again
        metrics_->sync();
        write_report(fs_, recipe_.run.folder);
      }
      if (step_ == end)
        save(fmt::format("end of phase '{}'", phase().name));
      else if (stop || (recipe_.checkpoint.every > 0 && step_ % recipe_.checkpoint.every == 0))
        save("");
    }
  }
  finish_save();
  if (leads()) metrics_->sync();
  if (leads() && step_ < total) write_report(fs_, recipe_.run.folder);
  result_.finished = step_ == total;
  result_.step = step_;
  result_.seconds = monotonic_seconds() - started_;
  return result_;
}

void Trainer::run_steps(int64_t steps) {
  data::PrefetchLoader loader([this](int64_t step) { return sampler_->batch(step); }, step_);
  for (; steps > 0 && step_ < sampler_->end_step() && !sampler_->change_due(); --steps) {
    enter(RunPhase::data);
    const double waited = loader.waited_seconds();
    const data::Batch rows = loader.next();
    train_step(rows, loader.waited_seconds() - waited);
  }
}

int64_t Trainer::update_weights(const StepStats& stats, const StepArgs& args) {
  if (gatherer_) gatherer_->reshard_all();
  optimizer_->step(args);
  int64_t clipped = 0;
  if (!qk_layers_.empty())
    for (const auto& [layer, logits] : stats.attention_logits)
      clipped += qk_clip(recipe_.optimizer.qk_clip, qk_layers_[static_cast<size_t>(layer)], logits);
  clipped = sum_over_model(clipped);
  if (shards_ && !gatherer_) shards_->gather(model_->weights());
  if (model_->keeps_loads()) keep_loads(stats, *model_);
  size_t layer_index = 0;
  for (const auto& [layer, counts] : stats.expert_counts) {
    if (balance_->layers() == 0) break;
    std::vector<int64_t> classes(counts);
    classes.resize(static_cast<size_t>(model_->router_bias(layer).numel()), 0);
    balance_->step(layer_index++, classes);
  }
  return clipped;
}

MetricRow Trainer::train_step(const data::Batch& batch, double wait_seconds) {
  const double start = monotonic_seconds();
  world_->set_step(step_ + 1);
  profile_.clear();
  StepOptions options = step_options();
  options.profile = &profile_;
  options.observer = observer_;
  enter(RunPhase::passes);
  const StepStats stats = runner_->run(batch, options);
  enter(RunPhase::optimizer);
  gradients_->finish_step();
  const double scale = stats.valid > 0 ? 1.0 / static_cast<double>(stats.valid) : 0.0;
  const double passes = monotonic_seconds();
  const GradNorm norm = norm_over_ranks(scale);
  judge(stats, batch, norm);
  StepArgs args;
  args.lr = recipe_.learning_rate(sampler_->phase(), step_ - sampler_->first_step()) *
            phase().rate_factor(sampler_->level());
  args.grad_scale = scale;
  args.clip_factor = clip_factor(norm.norm, recipe_.optimizer.clip);
  enter(RunPhase::update);
  const int64_t clipped_heads = update_weights(stats, args);
  const double end = monotonic_seconds();
  enter(RunPhase::records);
  ++step_;
  set_window();
  sampler_->count_step(stats.loss());
  tokens_ += batch.rows * batch.sequence_length;
  MetricRow row;
  row.step = step_;
  row.wall = wall_seconds();
  const double seconds = end - start + wait_seconds;
  row.set("loss", stats.loss());
  row.set("lr", args.lr);
  row.set("batch", static_cast<double>(batch.rows));
  row.set("grad_norm", norm.norm);
  row.set("tokens", static_cast<double>(tokens_));
  row.set("tokens_per_second", static_cast<double>(batch.rows * batch.sequence_length) / seconds);
  row.set("percent_of_roofline", 100 * level_plan().light_seconds / seconds);
  row.set("step_seconds", seconds);
  row.set("data_wait_seconds", wait_seconds);
  if (save_seconds_) row.set("checkpoint/seconds", *save_seconds_);
  save_seconds_.reset();
  row.set("memory_bytes", static_cast<double>(peak_memory_bytes()));
  row.set("memory_plan_misses", static_cast<double>(runner_->plan_misses()));
  for (size_t k = 0; k < stats.ahead.size(); ++k)
    row.set(fmt::format("loss_ahead_{}", k + 1), stats.ahead[k].loss());
  row.set("log_z", stats.valid > 0 ? stats.lse / static_cast<double>(stats.valid) : 0);
  row.set("attention_logit_max", stats.max_attention_logit);
  if (!qk_layers_.empty()) row.set("qk_clipped_heads", static_cast<double>(clipped_heads));
  add_router_metrics(row, stats);
  add_update_metrics(row);
  for (const auto& [op, p] : profile_) row.set("time/" + op, p.seconds[0] + p.seconds[1] + p.seconds[2]);
  row.set("time/optimizer", end - passes);
  return row;
}

void Trainer::add_router_metrics(MetricRow& row, const StepStats& stats) {
  double dead = 0;
  int64_t choices = 0;
  for (const auto& [layer, counts] : stats.expert_counts) {
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    choices += total;
    std::vector<double> load;
    for (const int64_t n : counts) {
      load.push_back(total > 0 ? static_cast<double>(n) / static_cast<double>(total) : 0);
      dead += n == 0;
    }
    row.set(fmt::format("router/{}/load", layer), std::move(load));
    row.set(fmt::format("router/{}/entropy", layer),
            normalized_load_entropy(counts, static_cast<int64_t>(counts.size())));
  }
  if (stats.expert_counts.empty()) return;
  row.set("dead_experts", dead);
  if (stats.dropped_choices > 0)
    row.set("router/dropped", static_cast<double>(stats.dropped_choices) / static_cast<double>(choices));
}

void Trainer::add_update_metrics(MetricRow& row) const {
  // Mean update-to-weight ratio by optimizer.
  for (const OptimizerKind kind : {OptimizerKind::muon, OptimizerKind::adamw, OptimizerKind::ademamix}) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < optimizer_->groups().size(); ++i)
      if (optimizer_->groups()[i].optimizer == kind && optimizer_->update_stats()[i].weight_rms > 0)
        sum += optimizer_->update_stats()[i].ratio(), ++count;
    if (count > 0) row.set(fmt::format("update_ratio/{}", name_of(kind)), sum / count);
  }
}

void Trainer::validate(MetricRow& row, bool complete) {
  const int64_t budget = complete ? 0 : recipe_.evaluation.max_tokens;
  const data::RowOptions rows = recipe_.data.rows();
  for (const data::Dataset& source : data_->sources) {
    if (!source.has_split("validation")) continue;
    const data::ValidationPass pass(source.validation(), phase().sequence, rows);
    const int64_t micro = phase().micro(recipe_.data_ranks()) * pipe_->stages();  // stages work side by side
    const int64_t windows = budget > 0
                                ? std::min(pass.windows(), std::max<int64_t>(1, budget / phase().sequence))
                                : pass.windows();
    const int64_t data = recipe_.data_ranks();
    double sums[2] = {0, 0};  // of -logprob, and targets
    // Data ranks take turns. At the end some repeat a window that does not count: the ranks of an expert group must have
    // equally many tokens.
    for (int64_t first = 0; first < windows;) {
      const int64_t left = windows - first,
                    count = left >= micro * data ? micro : std::max<int64_t>(1, left / data);
      const int64_t mine = first + count * groups_->batch_rank();
      const auto [nll, valid] = runner_->evaluate(pass.batch(mine < windows ? mine : first, count));
      if (mine < windows) sums[0] += nll, sums[1] += static_cast<double>(valid);
      first += count * data;
    }
    const Tensor t = Tensor::of(sums, {2});
    groups_->data().all_reduce(t, t).wait();
    pipe_->forward().all_reduce(t, t).wait();  // the last stage has them
    const double nll = sums[0], valid = sums[1];
    const double loss = valid > 0 ? nll / static_cast<double>(valid) : 0;
    // Bits per byte over the windows seen: their share of the split's bytes.
    const double bytes = static_cast<double>(pass.text_bytes()) * static_cast<double>(valid) /
                         static_cast<double>(pass.targets());
    row.set(fmt::format("val/{}/loss", source.name()), loss);
    row.set(fmt::format("val/{}/bits_per_byte", source.name()), bytes > 0 ? nll / std::log(2.0) / bytes : 0);
    result_.validation[source.name()] = loss;
  }
}

std::vector<int32_t> Trainer::sample_alone(std::span<const int32_t> prompt,
                                           const GenerateOptions& options) const {
  Generator generator(*model_);
  SequenceState sequence = generator.new_sequence();
  return generator.generate(sequence, prompt, options);
}

std::vector<int32_t> Trainer::sample_together(std::span<const int32_t> prompt,
                                              const GenerateOptions& options) const {
  RankLogits logits(*model_, step_ranks());
  std::vector<float> last;
  return continue_prompt(
      model_->config(), 0, prompt, options,
      [&](std::span<const int32_t> tokens) -> std::span<const float> { return last = logits.after(tokens); });
}

void Trainer::sample() {
  const bool parts = groups_->tensor().size() * pipe_->stages() > 1;  // of the model are on this rank
  for (size_t i = 0; i < recipe_.samples.prompts.size(); ++i) {
    const std::string& prompt = recipe_.samples.prompts[i];
    std::vector<int32_t> ids = data_->tokenizer.encode(prompt);
    if ((ids.empty() || recipe_.data.end_of_text_first) && data_->tokenizer.roles().eos)
      ids.insert(ids.begin(), *data_->tokenizer.roles().eos);
    if (ids.empty()) continue;
    GenerateOptions o;
    o.sampling.temperature = recipe_.samples.temperature;
    o.sampling.top_p = recipe_.samples.top_p;
    o.sampling.seed = static_cast<uint64_t>(recipe_.run.seed) + i;
    o.vocab = data_->vocab;
    o.max_tokens =
        std::min(recipe_.samples.tokens, model_->config().context - static_cast<int64_t>(ids.size()));
    if (data_->tokenizer.roles().eos) o.stop_ids = {*data_->tokenizer.roles().eos};
    const std::string text = data_->tokenizer.decode(parts ? sample_together(ids, o) : sample_alone(ids, o));
    result_.last_sample = prompt + text;
    if (!leads()) continue;
    append_sample(fs_, recipe_.run.folder + "/" + run_files::kSamples, {step_, prompt, text});
    events_->write_text(step_, wall_seconds(), fmt::format("sample/{}", i), prompt + text);
  }
}

void Trainer::log_line(const MetricRow& row) const {
  const double elapsed = monotonic_seconds() - started_;
  const int64_t done = step_ - started_step_, left = recipe_.total_steps() - step_;
  std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  grad {:.2f}  lr {:.2e}  {} tok/s  {:.0f}% of roofline  {}  eta {}", step_,
      recipe_.total_steps(), *row.scalar("loss"), *row.scalar("grad_norm"), *row.scalar("lr"),
      format_count(*row.scalar("tokens_per_second")), *row.scalar("percent_of_roofline"),
      format_bytes(*row.scalar("memory_bytes")),
      format_seconds(elapsed / static_cast<double>(std::max<int64_t>(1, done)) * static_cast<double>(left)));
  for (const auto& [name, value] : row.scalars)
    if (name.rfind("val/", 0) == 0) line += fmt::format("  {} {:.4f}", name, value);
  log::info("{}", line);
}

}  // namespace ingot
