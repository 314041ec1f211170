// See trainer.h: saving and restoring a run, its record, and the diagnosis of a run that goes wrong.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/layout.h"
#include "checkpoint/model_state.h"
#include "checkpoint/parameter_part.h"
#include "exchange/import.h"
#include "exchange/stored_model.h"
#include "ops/registry.h"
#include "train/trainer.h"

namespace ingot {
namespace {

/// Whether a fixed key of a phase is free yet: all of later phases, and the number of steps of the present one. Where
/// ranks have come or gone (`refits`), batch sizes too: the sampler continues from the samples consumed.
bool may_still_change(const std::string& path, size_t present_phase, bool refits) {
  size_t phase = 0;
  char key[32] = {};
  if (std::sscanf(path.c_str(), "phases.%zu.%31s", &phase, key) != 2) return false;
  const std::string_view k = key;
  const bool is_size = k == "batch" || (k.starts_with("batches.") && k.ends_with(".batch"));
  return phase > present_phase || (phase == present_phase && k == "steps") || (refits && is_size);
}

}  // namespace

SaveRequest Trainer::save_request(const std::string& protection) {
  SaveRequest request;
  request.step = step_;
  request.protection = protection;
  const WeightSet& weights = model_->weights();
  const auto add = [&](const std::string& name, TensorKind kind, int i, DType dtype, void* data,
                       int64_t begin) {
    const ElementRange mine = ownership_->owned(i);
    if (mine.empty()) return;
    const Tensor values(static_cast<std::byte*>(data) + (mine.begin - begin) * size_of(dtype), {mine.count()},
                        dtype);
    add_part(request.pieces, name, kind, {weights.table()[i], weights.placement(), values, mine.begin});
  };
  for (int i = 0; i < weights.size(); ++i)
    add(weights.table()[i].name, TensorKind::weight, i, weights.master(i).dtype(), weights.master(i).data, 0);
  for_each_parameter_state([&](const std::string& name, int i, DType dtype, void* data, ElementRange part) {
    add(name, TensorKind::optimizer, i, dtype, data, part.begin);
  });
  if (leads()) {
    for_each_common_state([&](const std::string& name, const Tensor& t) {
      request.pieces.push_back(Piece::whole(name, TensorKind::optimizer, t));
    });
    for (Piece& p : bias_pieces(*model_)) request.pieces.push_back(std::move(p));
  }
  request.blobs["sampler"] = data::to_json(sampler_->state());
  request.blobs["model"] = config_blob(print_config(model_->config()));
  request.blobs["recipe"] = config_blob(print_config(recipe_));
  request.blobs["watch"] = watch_.json();
  request.blobs["trainer"] = SavedRun{step_,
                                      tokens_,
                                      sampler_->phase(),
                                      data_->tokenizer.content_hash(),
                                      kernel_set_fingerprint(),
                                      sampler_->progress()}
                                 .json();
  return request;
}

void Trainer::for_each_parameter_state(
    const std::function<void(const std::string&, int, DType, void*, ElementRange)>& fn) {
  optimizer_->for_each_slot([&](const ParamView& p, const std::string& slot, const Tensor& t) {
    INGOT_CHECK(t.numel() == p.numel(), "'{}.{}' has {} values for {} elements", p.name, slot, t.numel(),
                p.numel());
    fn(optimizer_state_name(p.name + "." + slot), model_->decoder().table().find(p.name), t.dtype(), t.data,
       {p.begin, p.end()});
  });
}

int64_t Trainer::owned_elements() const {
  int64_t n = 0;
  for (int i = 0; i < model_->weights().size(); ++i) n += ownership_->owned(i).count();
  return n;
}

void Trainer::for_each_common_state(const std::function<void(const std::string&, const Tensor&)>& fn) {
  fn(optimizer_state_name("optimizer.step"), optimizer_->step_counter());
  balance_->for_each_state(
      [&](const std::string& name, const Tensor& t) { fn(optimizer_state_name(name), t); });
  if (model_->keeps_loads())
    for (const int64_t layer : model_->decoder().moe_layers())
      fn(optimizer_state_name(layer_prefix(layer) + "moe.router.load"), model_->router_load(layer));
}

void Trainer::save(const std::string& protection) {
  if (leads()) metrics_->sync();
  enter(RunPhase::save);
  const double begin = monotonic_seconds();
  try_to_save(protection);
  save_seconds_ = monotonic_seconds() - begin;
}

void Trainer::try_to_save(const std::string& protection) {
  const SaveRequest request = save_request(protection);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      return checkpoints_->save(request);  // throws also for the save before this one
    } catch (const Error& e) {
      if (leads())
        log::warn("step {}: {} checkpoint was not written: {}", step_, attempt == 0 ? "the last" : "this",
                  e.what());
    }
  }
}

void Trainer::try_commit() {
  try {
    checkpoints_->wait();
  } catch (const Error& e) {
    if (leads()) log::warn("step {}: the last checkpoint was not written: {}", step_, e.what());
  }
}

void Trainer::finish_save() {
  std::string protection;
  try {
    const auto report = checkpoints_->wait();
    if (report && report->step == step_) return;
  } catch (const Error& e) {
    if (leads()) log::warn("step {}: the checkpoint was not written, trying again: {}", step_, e.what());
  }
  if (step_ == sampler_->end_step()) protection = fmt::format("end of phase '{}'", phase().name);
  checkpoints_->save(save_request(protection));
  checkpoints_->wait();
}

void Trainer::require_no_checkpoints(const std::string& folder) const {
  if (!fs_.exists(folder)) return;
  for (const std::string& name : fs_.list(folder))
    if (checkpoint_layout::is_checkpoint_name(name))
      throw Error(fmt::format("'{}' holds checkpoints, but none of them is complete and undamaged", folder),
                  "starting anew would overwrite this run: restore a checkpoint, choose another run.folder, "
                  "or delete the folder");
}

/// Initial weights from the seed, or those of another run or import; its optimizer's state stays behind.
void Trainer::start_weights() {
  const std::string& from = recipe_.run.start_from;
  if (from.empty()) return model_->weights().initialize(static_cast<uint64_t>(recipe_.run.seed));
  const StoredModel stored = open_stored_model(fs_, from);
  const bool new_adapters = stored.config.lora.rank == 0;
  const ModelConfig start = new_adapters ? without_adapters(recipe_.model) : recipe_.model;
  std::string differences;
  for (const std::string& line : architecture_differences(stored.config, start)) differences += "\n  " + line;
  if (!differences.empty())
    throw Error(
        fmt::format(
            "run.start_from: '{}' holds another model than the recipe's (field: its value, the recipe's):{}",
            stored.reader.path(), differences),
        "take over the model section of that run's config.toml");
  const std::string tokenizer = stored_tokenizer_hash(stored.reader);
  if (!tokenizer.empty() && tokenizer != data_->tokenizer.content_hash())
    throw Error(fmt::format("run.start_from: '{}' was trained with tokenizer {}, the recipe's is {}",
                            stored.reader.path(), tokenizer, data_->tokenizer.content_hash()),
                stored.tokenizer_folder.empty()
                    ? "set tokenizer.path to its own tokenizer"
                    : fmt::format("set tokenizer.path = \"{}\"", stored.tokenizer_folder));
  if (new_adapters) model_->weights().initialize(static_cast<uint64_t>(recipe_.run.seed));
  load_model(stored.reader, *model_);
  if (leads()) log::info("starting from the weights of '{}'", stored.reader.path());
}

void Trainer::require_prompts() const {
  for (size_t i = 0; i < recipe_.samples.prompts.size(); ++i) {
    const std::string& prompt = recipe_.samples.prompts[i];
    size_t tokens = 0;
    try {
      tokens = data_->tokenizer.encode(prompt).size();
    } catch (const Error& e) {
      throw Error(fmt::format("samples.prompts.{}: {}", i, e.what()),
                  "set samples.prompts to texts that the tokenizer knows");
    }
    if (static_cast<int64_t>(tokens) >= recipe_.model.context)
      fail("samples.prompts.{} has {} tokens, which leaves no room in model.context = {}", i, tokens,
           recipe_.model.context);
  }
}

void Trainer::require_same_run(const CheckpointReader& reader) const {
  if (reader.manifest().blobs.contains(kImportBlob))
    throw Error(fmt::format("'{}' holds an imported model, not a run", recipe_.run.folder),
                fmt::format("set run.start_from = \"{}\" and another run.folder, or use `ingot finetune`",
                            recipe_.run.folder));
  const SavedRun then = SavedRun::of(reader);
  const std::string& kernels = then.kernels;
  if (kernels != kernel_set_fingerprint())
    throw Error(fmt::format("'{}' was written with kernel set {}, this program has {}: the run would not "
                            "continue bit for bit",
                            reader.path(), kernels, kernel_set_fingerprint()),
                "resume with the program that started the run, or start a new run from these weights");
  if (then.tokenizer != data_->tokenizer.content_hash())
    throw Error(fmt::format("'{}' was trained with tokenizer {}, the recipe's is {}", reader.path(),
                            then.tokenizer, data_->tokenizer.content_hash()),
                "restore the data folder of the run, or start a new run");
  const ConfigNode recipe_then =
      to_node(recipe_from_toml(config_of_blob(reader, "recipe"), reader.path() + ": recipe"));
  for (const ConfigDifference& d : diff_config(recipe_then, to_node(recipe_))) {
    if (d.fixed && !may_still_change(d.path, then.phase, recipe_.parallel.batch_fit != BatchFit::refuse))
      throw Error(fmt::format("the run in '{}' has {} = {}, the recipe says {}", recipe_.run.folder, d.path,
                              d.left, d.right),
                  "revert the change to resume, or choose another run.folder for a new run");
    if (d.path != "run.folder" && leads()) log::warn("{} was {} and is now {}", d.path, d.left, d.right);
  }
}

void Trainer::restore(const CheckpointReader& reader) {
  require_same_run(reader);
  load_model(reader, *model_);
  const WeightSet& weights = model_->weights();
  for_each_parameter_state([&](const std::string& name, int i, DType dtype, void* data, ElementRange part) {
    read_part(reader, name,
              {weights.table()[i], weights.placement(), Tensor(data, {part.count()}, dtype), part.begin});
  });
  for_each_common_state([&](const std::string& name, const Tensor& t) { reader.read(name, t); });
  watch_.restore(reader.blob("watch"));
  const SavedRun saved = SavedRun::of(reader);
  step_ = saved.step;
  tokens_ = saved.tokens;
  sampler_ = std::make_unique<PhaseSampler>(recipe_, *data_, reader);
}

void Trainer::write_record() {
  RunRecord record = RunRecord::of_this_machine(recipe_.run.folder, wall_seconds());
  const ParameterCounts n = count_parameters(model_->decoder());
  record.set("model", "parameters", n.total);
  record.set("model", "active parameters", n.active);
  record.set("model", "without embedding", n.without_embedding);
  for (const data::Dataset& s : data_->sources) {
    record.set("data", s.name() + " train tokens", s.train()->tokens());
    record.set("data", s.name() + " content", s.train()->content_hash());
  }
  record.set("data", "tokenizer", data_->tokenizer.content_hash());
  record.set("data", "vocabulary", static_cast<int64_t>(data_->vocab));
  record.set("plan", "tokens", plan_.tokens);
  record.set("plan", "predicted bytes", plan_.predicted_bytes);
  record.set("plan", "machine GFLOP/s", plan_.peak_gflops);
  record.set("plan", "machine GB/s", plan_.read_gbs);
  for (const PhasePlan& s : plan_.phases)
    record.set("plan", s.name + " GFLOP per step", s.levels.front().step_flops * 1e-9);
  record.set("kernels", "fingerprint", kernel_set_fingerprint());
  record.set_config(to_node(recipe_));
  write_run_record(fs_, recipe_.run.folder, record);
}

void Trainer::judge(const StepStats& stats, const data::Batch& batch, const GradNorm& norm) {
  if (stats.valid == 0) fail("step {}: the batch has no valid target (all masked)", step_ + 1);
  if (!std::isfinite(stats.loss()))
    diagnose(batch, fmt::format("the loss of step {} is {}", step_ + 1, stats.loss()));
  if (!norm.finite()) diagnose(batch, fmt::format("step {}: {}", step_ + 1, describe_bad_norm(norm)));
  switch (watch_.observe(stats.loss())) {
    case LossWatch::Verdict::fine:
      return;
    case LossWatch::Verdict::spike:
      if (leads())
        log::warn(
            "step {}: loss {:.4f} is a spike (recent mean {:.4f}, deviation {:.4f}); first samples of the "
            "batch: {}",
            step_ + 1, stats.loss(), watch_.mean(), watch_.deviation(),
            batch.origins.empty() ? 0 : batch.origins.front().sample);
      return;
    case LossWatch::Verdict::diverged:
      throw Error(
          fmt::format("the loss has been far above its mean ({:.4f}) for {} steps; it is {:.4f} at step {}",
                      watch_.mean(), watch_.spike_steps(), stats.loss(), step_ + 1),
          "lower the learning rate or clip harder and resume from the last checkpoint, or raise "
          "health.spike_patience");
  }
}

/// Runs the step again with every op checked: the weights are still those that failed, and kernels are pure.
void Trainer::diagnose(const data::Batch& batch, const std::string& what) {
  StepOptions options = step_options();
  options.check_finite = true;
  std::string cause = "running the step again with checks found nothing; suspect the hardware";
  try {
    runner_->run(batch, options);
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

}  // namespace ingot
