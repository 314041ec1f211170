// See engine.h.
#include "train/engine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/finite.h"
#include "base/log.h"
#include "checkpoint/model_state.h"
#include "checkpoint/parameter_part.h"
#include "exchange/import.h"
#include "exchange/stored_model.h"
#include "models/stage_boundary.h"
#include "optim/update_kernels.h"
#include "train/phase_kind.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

/// Which head mode a phase runs: the recipe's. `automatic` is gradient where it can be (whole rows of logits,
/// cotangents that are known), which takes the least memory and is as fast as store; else store while the
/// logits of the largest micro-batch take at most an eighth of the machine's memory and 512 MiB; else
/// recompute.
HeadMode head_mode(const Recipe& recipe, const Model& model, const PhaseConfig& phase,
                   const Objective& objective) {
  if (recipe.memory.head != HeadMode::automatic) return recipe.memory.head;
  if (objective.known_cotangent && recipe.parallel.tensor == 1) return HeadMode::gradient;
  int64_t micro = 0;
  for (int64_t level = 0; level < phase.levels(); ++level)
    micro = std::max(micro, phase.micro_at(level, recipe.data_ranks()));
  const int64_t logits = micro * phase.sequence * model.config().head_rows() * 4;
  const int64_t memory = machine_info().memory_bytes;
  return logits <= std::min<int64_t>(memory / 8, int64_t{512} << 20) ? HeadMode::store : HeadMode::recompute;
}

/// The layers whose router trains; elsewhere the selection bias is frozen with its router.
std::set<int64_t> training_routers(const ParameterTable& table) {
  std::set<int64_t> layers;
  for (int i = 0; i < table.size(); ++i)
    if (const ParameterSpec& p = table[i]; p.trainable && p.name.starts_with("layers.")) {
      const int64_t layer = std::atoll(p.name.c_str() + 7);
      if (p.name.starts_with(layer_prefix(layer) + "moe.router.")) layers.insert(layer);
    }
  return layers;
}

}  // namespace

StepOptions step_options(const Recipe& recipe, const Model& model, const PhaseConfig& phase,
                         int64_t micro_batch) {
  StepOptions o;
  o.objective = kind_of(phase).objective(phase);
  o.head = head_mode(recipe, model, phase, *o.objective);
  o.micro_batch = micro_batch;
  o.z_coefficient = phase.z_coefficient;
  return o;
}

std::string load_first_weights(FileSystem& fs, const Recipe& recipe, const std::string& tokenizer,
                               Model& model) {
  const auto seed = static_cast<uint64_t>(recipe.run.seed);
  const std::string& from = recipe.run.start_from;
  if (from.empty()) {
    model.weights().initialize(seed);
    return {};
  }
  const StoredModel stored = open_stored_model(fs, from);
  const bool new_adapters = stored.config.lora.rank == 0;
  const ModelConfig start = new_adapters ? without_adapters(recipe.model) : recipe.model;
  std::string differences;
  for (const std::string& line : architecture_differences(stored.config, start)) differences += "\n  " + line;
  if (!differences.empty())
    throw Error(
        fmt::format(
            "run.start_from: '{}' holds another model than the recipe's (field: its value, the recipe's):{}",
            stored.reader.path(), differences),
        "take over the model section of that run's config.toml");
  const std::string trained_with = stored_tokenizer_hash(stored.reader);
  if (!tokenizer.empty() && !trained_with.empty() && trained_with != tokenizer)
    throw Error(fmt::format("run.start_from: '{}' was trained with tokenizer {}, the recipe's is {}",
                            stored.reader.path(), trained_with, tokenizer),
                stored.tokenizer_folder.empty()
                    ? "set tokenizer.path to its own tokenizer"
                    : fmt::format("set tokenizer.path = \"{}\"", stored.tokenizer_folder));
  if (new_adapters) model.weights().initialize(seed);
  load_model(stored.reader, model);
  return stored.reader.path();
}

TrainEngine::TrainEngine(const Recipe& recipe, const RunRanks& ranks, Backing backing)
    : TrainEngine(recipe, nullptr, &ranks, backing) {}

TrainEngine::TrainEngine(const Recipe& recipe, Backing backing)
    : TrainEngine(recipe, std::make_unique<RunRanks>(recipe), nullptr, backing) {}

TrainEngine::TrainEngine(const Recipe& recipe, std::unique_ptr<RunRanks> alone, const RunRanks* ranks,
                         Backing backing)
    : recipe_(recipe),
      alone_(std::move(alone)),
      ranks_(alone_ ? alone_.get() : ranks),
      weights_device_(backing == Backing::memory ? device_of_weights() : DeviceKind::cpu) {
  build_model(backing);
  build_optimizer(backing);
  build_balance();
  policy_ =
      std::make_unique<NamedPolicy>(recipe_.memory.recompute, recipe_.memory.offload, recipe_.memory.fp8);
  runner_ = std::make_unique<StepRunner>(*model_, *gradients_, step_ranks());
}

DeviceKind TrainEngine::device_of_weights() const {
  const DeviceKind device = compute_device();
  // A GPU's kernels update what one rank holds.
  const bool updates = device == DeviceKind::cuda
                           ? ranks_->groups().world().size() == 1 && has_update_kernels(device)
                           : device_of(device).runs_host_kernels();
  // Shards of weights and staged gradients come and go page by page; rules for matrices in parts talk to
  // other ranks in the middle of a kernel.
  const bool moves = recipe_.parallel.shard == ShardLevel::none && recipe_.parallel.tensor == 1 &&
                     recipe_.parallel.expert_tensor == 1 &&
                     dtype_of(recipe_.optimizer.gradient) == DType::f32 && updates;
  return moves ? device : DeviceKind::cpu;
}

void TrainEngine::build_model(Backing backing) {
  const RankGroups& groups = ranks_->groups();
  // What each pipeline stage holds follows from the names of the whole model's parameters.
  Decoder whole(recipe_.model);
  pipeline_ = std::make_unique<PipelineGroups>(groups.grid(), groups.rank(), ranks_->group_maker(),
                                               layout_of(recipe_.parallel, recipe_.model), whole.table());
  model_ = std::make_unique<Model>(std::move(whole), recipe_.model_precision(),
                                   pipeline_->placement(groups.placement()), backing, weights_device_);
  model_->join([&groups](Context& c) {
    groups.join(c);
    if (c.context_rows == nullptr) c.context = nullptr;  // samples: each context rank runs whole sequences
  });
  model_->freeze(recipe_.optimizer.freeze);
  const ParameterTable& table = model_->decoder().table();
  if (table.trainable() == 0)
    throw Error("optimizer.freeze matches every parameter: nothing is left to train", "narrow its patterns");
  const ShardLevel level = recipe_.parallel.shard;
  if (level != ShardLevel::none) shards_ = std::make_unique<Shards>(groups, model_->weights());
  if (level == ShardLevel::full)
    gatherer_ = std::make_unique<WeightGatherer>(groups, model_->weights(), pipeline_.get());
  ownership_ = shards_ ? std::make_unique<Ownership>(groups, *pipeline_, table, *shards_)
                       : std::make_unique<Ownership>(groups, *pipeline_, table);
  gradients_ =
      std::make_unique<GradientBuffer>(table, model_->weights().placement(), DType::f32,
                                       dtype_of(recipe_.optimizer.gradient), backing, weights_device_);
}

void TrainEngine::build_optimizer(Backing backing) {
  const RankGroups& groups = ranks_->groups();
  std::vector<ParamView> views = optimizer_views(model_->weights(), *gradients_, &groups, shards_.get());
  if (recipe_.optimizer.qk_clip.threshold > 0) {
    ModelConfig held = recipe_.model;  // tensor ranks have whole heads
    held.heads /= groups.tensor().size();
    held.kv_heads /= groups.tensor().size();
    qk_layers_ = qk_clip_layers(held, views);
  }
  OptimizerConfig config = recipe_.optimizer;
  config.groups = groups_of_stage(std::move(config.groups), model_->decoder().table(), views);
  optimizer_ = std::make_unique<Optimizer>(std::move(config), std::move(views), recipe_.optimizer_run(),
                                           backing, weights_device_);
  optimizer_->for_each_slot([](const ParamView& p, const std::string& slot, const Tensor& t) {
    if (t.numel() != p.numel())
      throw Error(fmt::format("the optimizer of '{}' wants state '{}' {}; a run saves one value for each of "
                              "its {} elements",
                              p.name, slot, t.shape().str(), p.numel()),
                  "choose another optimizer");
  });
}

void TrainEngine::build_balance() {
  const MoeConfig& moe = recipe_.model.moe;
  std::vector<BalanceView> views;
  const std::set<int64_t> trains = training_routers(model_->decoder().table());
  if (moe.balance != BalanceRule::none)
    for (const int64_t layer : model_->decoder().moe_layers())
      views.push_back({Model::router_bias_name(layer), moe.experts, model_->router_bias(layer).numel(),
                       model_->router_bias(layer).as<float>(), !trains.contains(layer)});
  const BalanceConfig config{.rule = moe.balance, .rate = moe.balance_rate};
  balance_ = std::make_unique<BalanceController>(config, std::move(views), weights_device_);
}

StepRanks TrainEngine::step_ranks() const {
  const bool scheduled = pipeline_->stages() > 1 || recipe_.parallel.schedule == PipelineScheduleKind::merged;
  return {&ranks_->groups(), scheduled ? pipeline_.get() : nullptr, recipe_.parallel.schedule,
          gatherer_.get()};
}

int64_t TrainEngine::owned_elements() const {
  int64_t n = 0;
  for (int i = 0; i < model_->weights().size(); ++i) n += owned(i).count();
  return n;
}

void TrainEngine::set_memory_policy(const std::vector<std::string>& recompute,
                                    const std::vector<std::string>& offload, const std::string& folder) {
  policy_ = std::make_unique<NamedPolicy>(recompute, offload, recipe_.memory.fp8);
  if (!policy_->offloads() || store_) return;
  store_ = file_offload_store(recipe_.memory.offload_folder.empty() ? folder : recipe_.memory.offload_folder);
  if (compute_device() != DeviceKind::cpu)
    store_ = device_offload_store(device_of(compute_device()), std::move(store_));
}

void TrainEngine::load_start(FileSystem& fs, const std::string& tokenizer) {
  const std::string from = load_first_weights(fs, recipe_, tokenizer, *model_);
  if (!from.empty() && ranks_->leads()) log::info("starting from the weights of '{}'", from);
}

void TrainEngine::enter(size_t phase, int64_t steps) {
  model_->set_rope_theta(recipe_.rope_theta_of(phase));
  model_->set_window(recipe_.window_at(phase, steps));
  if (phase_ == phase) return;
  // Where no phase has settings of its own, rules keep what they have.
  const bool changes = std::any_of(recipe_.phases.begin(), recipe_.phases.end(),
                                   [](const PhaseConfig& p) { return p.optimizer.changes(); });
  if (changes) optimizer_->change(recipe_.phases[phase].optimizer.over(recipe_.optimizer));
  phase_ = phase;
}

StepOptions TrainEngine::options(size_t phase, int64_t micro_batch) const {
  StepOptions o = step_options(recipe_, *model_, recipe_.phases.at(phase), micro_batch);
  o.policy = policy_.get();
  o.offload_store = store_.get();
  return o;
}

StepStats TrainEngine::forward_backward(const data::Batch& batch, const StepOptions& options) {
  const OnDevice weights(*this);
  StepStats stats = runner_->run(batch, options);
  gradients_->finish_step();
  return stats;
}

StepOutcome TrainEngine::step(const data::Batch& batch, const StepCall& call) {
  if (weights_device_ != DeviceKind::cpu) return step_on_device(batch, call);
  const auto enters = [&](StepPart part) {
    if (call.observer != nullptr) call.observer->enters(part);
  };
  const double begin = monotonic_seconds();
  StepOptions options = call.options;
  options.observer = call.observer;
  enters(StepPart::passes);
  StepOutcome o{.stats = runner_->run(batch, options)};
  enters(StepPart::optimizer);
  gradients_->finish_step();
  const double middle = monotonic_seconds();
  end_on_host(call, o);
  o.passes_seconds = middle - begin;
  o.update_seconds = monotonic_seconds() - middle;
  return o;
}

void TrainEngine::end_on_host(const StepCall& call, StepOutcome& o) {
  const double scale = o.stats.valid > 0 ? 1.0 / o.stats.divisor : 0.0;
  o.norm = norm_over_ranks(gradient_norm(optimizer_->params(), scale).sum_squares, scale);
  if (call.judge) call.judge(o.stats, o.norm);
  if (call.observer != nullptr) call.observer->enters(StepPart::update);
  o.clipped_heads = update(o.stats, {.lr = call.lr,
                                     .grad_scale = scale,
                                     .clip_factor = clip_factor(o.norm.norm, optimizer_->config().clip)});
}

GradNorm TrainEngine::norm_over_ranks(const std::vector<double>& sum_squares, double scale) const {
  const ParameterTable& table = model_->decoder().table();
  GradNorm norm;
  norm.sum_squares.resize(static_cast<size_t>(table.size()));
  for (size_t i = 0; i < sum_squares.size(); ++i) {
    const int parameter = table.find(optimizer_->params()[i].name);
    if (!owned(parameter).empty()) norm.sum_squares[static_cast<size_t>(parameter)] = sum_squares[i];
  }
  const Tensor sums = Tensor::of(norm.sum_squares.data(), {table.size()});
  Communicator& world = ranks_->groups().world();
  if (world.size() > 1) world.all_reduce(sums, sums).wait();
  norm.combine(scale);
  return norm;
}

std::string TrainEngine::describe_bad_norm(const GradNorm& norm) const {
  bring_back();
  const std::string& name = model_->decoder().table()[static_cast<int>(norm.first_bad)].name;
  for (const ParamView& p : optimizer_->params())
    if (p.name == name) return describe_bad_gradient({&p, 1}, GradNorm{{}, norm.norm, 0});
  return fmt::format("the gradient of '{}', which other ranks hold, is not finite", name);
}

void TrainEngine::bring_back() const {
  model_->use_device(false);
  gradients_->use_device(false);
  if (model_->weights().size() == 0) return;
  model_->weights().master(0);
  gradients_->gradient(0);
}

std::string TrainEngine::describe_bad_weight() const {
  const std::span<const ParamView> params = optimizer_->params();
  for (size_t i = 0; i < params.size(); ++i) {
    const UpdateStat& stat = optimizer_->update_stats()[i];
    if (std::isfinite(stat.weight_rms) && std::isfinite(stat.update_rms)) continue;
    bring_back();
    // The square of a large finite value overflows too.
    const StoredValues& w = params[i].master;
    const int64_t bad = first_not_finite(w.data, params[i].numel(), dtype_of(w.storage));
    if (bad >= 0)
      return fmt::format("'{}' ({} at element {})", params[i].name,
                         value_at(w.data, bad, dtype_of(w.storage)), params[i].begin + bad);
  }
  return {};
}

int64_t TrainEngine::update(const StepStats& stats, const StepArgs& args) {
  if (gatherer_) gatherer_->reshard_all();
  optimizer_->step(args);
  int64_t clipped = 0;
  if (clips_attention())
    for (const auto& [layer, logits] : stats.attention_logits)
      clipped += qk_clip(recipe_.optimizer.qk_clip, qk_layers_[static_cast<size_t>(layer)], logits);
  clipped = sum_over_model(clipped);
  if (shards_ && !gatherer_) shards_->gather(model_->weights());
  update_routers(stats);
  model_->weights().changed();
  return clipped;
}

void TrainEngine::update_routers(const StepStats& stats) {
  if (model_->keeps_loads())
    for (const auto& [layer, counts] : stats.expert_counts)
      load_fractions(counts, model_->router_load(layer).as<float>());
  if (!moves_biases()) return;
  size_t index = 0;
  for (const auto& [layer, counts] : stats.expert_counts) {
    std::vector<int64_t> classes(counts);
    classes.resize(static_cast<size_t>(model_->router_bias(layer).numel()), 0);
    balance_->step(index++, classes);
  }
}

bool TrainEngine::moves_biases() const {
  return balances_routers() && !(phase_ && recipe_.phases[*phase_].freeze_balance);
}

int64_t TrainEngine::boundary_bytes(size_t phase) const {
  const PipelineLayout& layout = pipeline_->layout();
  if (layout.stages.size() < 2) return 0;
  const PhaseConfig& s = recipe_.phases[phase];
  const ParallelConfig& p = recipe_.parallel;
  const int64_t rows =
      micro_rows(s, 0, recipe_.data_ranks()) * s.sequence / p.context / (p.sequence ? p.tensor : 1);
  const Decoder& decoder = model_->decoder();
  const StageBoundaries& boundaries =
      decoder.boundaries(model_->weights().precision(), decoder.config().mtp.depths);
  int64_t bytes = 0;
  for (const TensorMeta& m : boundaries.at(position_before(layout.stages[1])).metas(rows)) bytes += m.bytes();
  return bytes;
}

int64_t TrainEngine::sum_over_model(int64_t value) const {
  auto sum = static_cast<double>(value);
  const Tensor t = Tensor::of(&sum, {1});
  ranks_->groups().tensor().all_reduce(t, t).wait();
  pipeline_->forward().all_reduce(t, t).wait();
  return static_cast<int64_t>(sum);
}

void TrainEngine::visit_parameter_state(const std::function<void(const ParameterState&)>& fn) {
  optimizer_->for_each_slot([&](const ParamView& p, const std::string& slot, const Tensor& t) {
    INGOT_CHECK(t.numel() == p.numel(), "'{}.{}' has {} values for {} elements", p.name, slot, t.numel(),
                p.numel());
    fn({optimizer_state_name(p.name + "." + slot), model_->decoder().table().find(p.name),
        Tensor(t.data, {t.numel()}, t.dtype()), p.begin});
  });
}

void TrainEngine::visit_common_state(const std::function<void(const std::string&, const Tensor&)>& fn) {
  fn(optimizer_state_name("optimizer.step"), optimizer_->step_counter());
  balance_->for_each_state(
      [&](const std::string& name, const Tensor& t) { fn(optimizer_state_name(name), t); });
  if (model_->keeps_loads())
    for (const int64_t layer : model_->decoder().moe_layers())
      fn(optimizer_state_name(layer_prefix(layer) + "moe.router.load"), model_->router_load(layer));
}

}  // namespace ingot
