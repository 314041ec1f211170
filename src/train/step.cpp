// See step.h.
#include "train/step.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include "base/round.h"
#include "tape/backward.h"
#include "tensor/borrowed_arena.h"
#include "train/rank_stats.h"

namespace ingot {

namespace {

/// How tensor ranks shard a matrix.
MatrixSharding sharding_of(const ParameterSpec& spec, Placement placement, const RankGroups& groups) {
  MatrixSharding sharding;
  for (const ShardRule* rule : {&spec.shard, &spec.width_shard})
    if (Communicator* group = groups.tensor_group(rule->axis))
      sharding = {group, rule->dim == spec.shape.rank() - 1 ? 1 : 0};
  if (sharding.group == nullptr || spec.row_splits.empty() || !local_row_splits(spec, placement).empty())
    return sharding;
  sharding.blocks = spec.row_splits;
  for (placement.tensor_rank = 0; placement.tensor_rank < placement.tensor_size; ++placement.tensor_rank) {
    std::vector<RowRange>& rows = sharding.rows.emplace_back();
    for (const ParameterPiece& piece : pieces_of(spec, placement))
      rows.push_back({piece.global_offset[0], piece.extent[0]});
  }
  return sharding;
}

/// The values of a tensor from element `begin` on. A weight in bf16 is rounded stochastically.
StoredValues part_from(const Tensor& t, int64_t begin) {
  return {static_cast<std::byte*>(t.data) + begin * size_of(t.dtype()),
          t.dtype() == DType::bf16 ? ValueStorage::bf16_stochastic : ValueStorage::f32};
}

}  // namespace

std::vector<ParamView> optimizer_views(const WeightSet& w, const GradientBuffer& gradients,
                                       const RankGroups* groups, const Shards* shards) {
  std::vector<ParamView> params;
  for (int i = 0; i < w.size(); ++i) {
    const ParameterSpec& spec = w.table()[i];
    if (!spec.trainable || !holds(w.placement(), spec)) continue;
    ParamView p;
    p.name = spec.name;
    p.shape = w.master(i).shape();
    p.matrices = spec.matrices > 1 ? p.shape[0] : 1;
    p.row_splits = local_row_splits(spec, w.placement());
    p.width_multiple = spec.width_multiple;
    if (shards != nullptr) {
      p.shards = &shards->of(i);
      const auto r = static_cast<size_t>(p.shards->group->rank());
      p.begin = p.shards->begins[r];
      p.count = p.shards->begins[r + 1] - p.begin;
    }
    if (groups != nullptr) p.sharding = sharding_of(spec, w.placement(), *groups);
    p.master = part_from(w.master(i), p.begin);
    p.grad = part_from(gradients.gradient(i), p.begin);
    if (w.has_copy(i)) {
      p.compute_dtype = w.compute(i).dtype();
      p.compute = static_cast<std::byte*>(w.compute(i).data) + p.begin * size_of(p.compute_dtype);
    }
    params.push_back(std::move(p));
  }
  return params;
}

namespace {

/// Runs micro-batches of `tokens` tokens by the schedule of a pipeline. `more`: observers, or nullptr.
void run_pipeline(const Model& model, const StepRanks& ranks, PipelineSchedule schedule,
                  const PipelineStepMaker& make, int64_t tokens, const TapeOptions& options, Arena& arena,
                  std::initializer_list<ScheduleObserver*> more = {}) {
  const RankGroups& groups = *ranks.groups;
  const int64_t row_ranks =
      groups.context().size() * (groups.options().sequence_parallel ? groups.tensor().size() : 1);
  const Pipeline pipeline(model.decoder(), model.weights().precision(), *ranks.pipe, std::move(schedule));
  std::vector<ScheduleObserver*> observers;
  if (ranks.gatherer != nullptr && options.device != DeviceKind::null) observers.push_back(ranks.gatherer);
  std::copy_if(more.begin(), more.end(), std::back_inserter(observers),
               [](const ScheduleObserver* observer) { return observer != nullptr; });
  pipeline.run(make, tokens / row_ranks, options, arena, observers);
}

PipelineShape shape_of(const PipelineGroups& pipe, int64_t micro_batches) {
  return {pipe.stages(), pipe.layout().chunks(), static_cast<int>(micro_batches)};
}

/// The ranks of the step, as tapes move their data along; nullptr: none.
Communicator* world_of(const StepRanks& ranks) {
  return ranks.groups != nullptr ? &ranks.groups->world() : nullptr;
}

TapeOptions tape_options(const StepOptions& o, GradientSink* sink, DeviceKind device,
                         Communicator* ranks = nullptr) {
  TapeOptions t;
  t.device = device;
  t.ranks = ranks;
  t.copies_leaves = compute_device() != DeviceKind::cpu && !o.has_places;
  t.check_finite = o.check_finite;
  t.policy = o.policy;
  t.offload_store = o.offload_store;
  t.sink = sink;
  t.observer = o.observer;
  t.profile = o.profile;
  return t;
}

TapeOptions forward_only(const StepRanks& ranks) {
  return {.device = compute_device(),
          .copies_leaves = compute_device() != DeviceKind::cpu,
          .record = false,
          .ranks = world_of(ranks)};
}

std::shared_ptr<const MicroBatch> share(MicroBatch batch) {
  return std::make_shared<const MicroBatch>(std::move(batch));
}

/// The gradient sink of the null device: accepts every contribution, without memory.
class NullSink final : public GradientSink {
 public:
  explicit NullSink(const WeightSet& w) : weights_(w) {}
  bool wants(int p) override { return weights_.table()[p].trainable; }
  GradSlot slot(int p) override {
    const Tensor m = weights_.master(p);
    return {Tensor(nullptr, m.shape(), weights_.precision().stream, DeviceKind::null), false};
  }
  void finished(int) override {}

 private:
  const WeightSet& weights_;
};

/// Lengths of documents that fill a sequence so that the mean over tokens of the length of a token's document
/// is `mean`: n of one length, and a shorter one.
std::vector<int64_t> documents_of(int64_t length, int64_t mean) {
  if (mean == 0 || mean >= length) return {length};
  const int64_t n = ceil_div(length, mean) - 1;
  const auto count = static_cast<double>(n), all = static_cast<double>(length);
  // n a^2 + (all - n a)^2 = mean all
  const double root = std::sqrt(count * all * (static_cast<double>(mean) * (count + 1) - all));
  const double each = (count * all + root) / (count * (count + 1));
  std::vector<int64_t> lengths(static_cast<size_t>(n), std::min<int64_t>(std::llround(each), length / n));
  if (const int64_t left = length - n * lengths.front(); left > 0) lengths.push_back(left);
  return lengths;
}

/// Sequences of token 0: on the null device only shapes matter. `document`: SupposedData::document_tokens.
data::Batch blank_batch(int64_t sequences, int64_t length, int64_t document = 0) {
  const auto tokens = static_cast<size_t>(sequences * length);
  data::Batch batch;
  batch.rows = sequences;
  batch.sequence_length = length;
  batch.tokens.assign(tokens, 0);
  batch.targets.assign(tokens, 0);
  batch.positions.assign(tokens, 0);
  int32_t at = 0;
  for (int64_t r = 0; r < sequences; ++r)
    for (const int64_t tokens_of_one : documents_of(length, document)) {
      const auto end = static_cast<int32_t>(at + tokens_of_one);
      batch.spans.push_back({at, end}), at = end;
    }
  return batch;
}

/// Notes what is in memory after a pipeline's first forward and not after its first backward pass.
class HeldBytes final : public ScheduleObserver {
 public:
  HeldBytes(const Arena& arena, int64_t& held) : arena_(arena), held_(held) {}
  void before_entry(std::span<const ScheduleEntry> /*entries*/) override {}
  void after_entry(const ScheduleEntry& entry) override {
    const bool forward = entry.work.kind == WorkKind::forward;
    if (forward ? held_ == 0 : !complete_) held_ += (forward ? 1 : -1) * arena_.live_bytes();
    complete_ |= !forward;
  }

 private:
  const Arena& arena_;
  int64_t& held_;
  bool complete_ = false;
};

}  // namespace

double StepPlan::flops() const {
  double sum = 0;
  for (const auto& [name, p] : work) sum += p.flops[0] + p.flops[1] + p.flops[2];
  return sum;
}

StepPlan plan_step(const Model& model, const StepOptions& options, int64_t sequences, int64_t length,
                   const StepRanks& ranks, int64_t micro_batches, const PlanObservers& observers) {
  StepPlan plan;
  const int64_t document = ranks.groups != nullptr ? ranks.groups->options().supposed.document_tokens : 0;
  const data::Batch batch = blank_batch(sequences, length, document);
  CountingArena arena;
  NullSink sink(model.weights());
  StepOptions o = options;
  o.profile = &plan.work;
  o.observer = observers.tape;
  o.check_finite = false;
  const std::vector<ShiftedTargets> mtp = shifted_targets(batch, model.config().mtp);
  const TapeOptions how = tape_options(o, &sink, DeviceKind::null);
  RunningCounts running(model);
  StepReads nothing(cpu_device());
  const PipelineStepMaker make = [&](Tape& tape, int) {
    return std::make_unique<MicroStep>(model, tape,
                                       share(micro_batch(batch, 0, sequences, mtp, ranks.groups)), o,
                                       StepTokens{}, nullptr, running, nothing);
  };
  if (ranks.pipe != nullptr) {
    plan.micro_batches = micro_batches;
    const PipelineSchedule schedule =
        make_pipeline_schedule(ranks.schedule, shape_of(*ranks.pipe, micro_batches));
    const std::vector<ScheduleEntry>& table = schedule.ranks[static_cast<size_t>(ranks.pipe->stage())];
    plan.gathered_weight_bytes =
        WeightGatherer::plan(*ranks.groups, model.weights(), *ranks.pipe, table).peak_bytes;
    HeldBytes held(arena, plan.held_bytes);
    run_pipeline(model, ranks, schedule, make, sequences * length, how, arena, {&held, observers.schedule});
  } else {
    plan.gathered_weight_bytes = model.weights().transient_bytes();
    Tape tape(arena, how);
    const auto step = make(tape, 0);
    step->forward(whole_model(model.config()), {});
    plan.held_bytes = arena.live_bytes();
    Backward(tape).run();
    plan.held_bytes -= arena.live_bytes();
  }
  plan.memory = plan_memory(arena.allocations());
  plan.peak_bytes = arena.peak_bytes();
  plan.categories = arena.peak_by_category();
  return plan;
}

void record_forward(const Model& model, const StepOptions& options, int64_t sequences, int64_t length,
                    const std::function<void(const Tape&)>& show) {
  const data::Batch batch = blank_batch(sequences, length);
  const std::vector<ShiftedTargets> mtp = shifted_targets(batch, model.config().mtp);
  CountingArena arena;
  Tape tape(arena, {.device = DeviceKind::null});
  RunningCounts running(model);
  StepReads nothing(cpu_device());
  MicroStep step(model, tape, share(micro_batch(batch, 0, sequences, mtp)), options, {}, nullptr, running,
                 nothing);
  step.forward(whole_model(model.config()));
  show(tape);
}

std::vector<float> logprobs(const Model& model, const StepRanks& where, const data::Batch& batch,
                            int64_t micro_batch_rows, float logit_scale) {
  const RankGroups* groups = where.groups;
  const int64_t ranks = groups != nullptr ? groups->batch_ranks() : 1,
                rank = groups != nullptr ? groups->batch_rank() : 0;
  INGOT_CHECK(micro_batch_rows > 0 && batch.rows % (micro_batch_rows * ranks) == 0,
              "{} rows in micro-batches of {} on {} ranks", batch.rows, micro_batch_rows, ranks);
  INGOT_CHECK(groups == nullptr || groups->context().size() == 1, "context ranks share sequences");
  const int64_t count = batch.rows / (ranks * micro_batch_rows),
                tokens = micro_batch_rows * batch.sequence_length, first = rank * count * micro_batch_rows;
  std::vector<float> all(batch.tokens.size(), 0.0F);
  HeadStats stats;
  HeapArena heap(device_of(compute_device()));
  const auto step = [&](Tape& tape, int64_t b) {
    const int64_t row = first + b * micro_batch_rows;
    const std::span<float> place =
        std::span(all).subspan(static_cast<size_t>(row * batch.sequence_length), static_cast<size_t>(tokens));
    return std::make_unique<EvaluationStep>(
        model, tape, micro_batch(batch, row, micro_batch_rows, {}, groups), stats, place, logit_scale);
  };
  if (where.pipe != nullptr) {
    run_pipeline(
        model, where, make_forward_schedule(shape_of(*where.pipe, count)),
        [&](Tape& tape, int b) { return step(tape, b); }, tokens, forward_only(where), heap);
  } else {
    for (int64_t b = 0; b < count; ++b) {
      Tape tape(heap, forward_only(where));
      step(tape, b)->forward(whole_model(model.config()), {});
    }
  }
  const Tensor t = Tensor::of(all.data(), {static_cast<int64_t>(all.size())});
  if (groups != nullptr && groups->data().size() > 1) groups->data().all_reduce(t, t).wait();
  if (where.pipe != nullptr) where.pipe->forward().all_reduce(t, t).wait();
  return all;
}

StepRunner::StepRunner(Model& model, GradientBuffer& gradients, const StepRanks& ranks)
    : model_(model), gradients_(gradients), ranks_(ranks) {
  if (ranks.groups != nullptr)
    reducer_ =
        std::make_unique<GradientReducer>(*ranks.groups, model.decoder().table(), gradients, ranks.pipe);
}

PlannedArena& StepRunner::prepare_arena(const data::Batch& batch, const StepOptions& options, int64_t count) {
  const ArenaKey key{ranks_.pipe != nullptr ? count : 1,
                     options.micro_batch,
                     batch.sequence_length,
                     options.head,
                     options.z_coefficient != 0,
                     options.objective->entropy,
                     options.policy,
                     options.has_places};
  if (arena_ && key == arena_key_) return *arena_;
  if (graphs_ && key == arena_key_) graphs_->forget();
  if (key != arena_key_) graphs_.reset();
  arena_.reset();  // frees the old memory first
  arena_ = std::make_unique<PlannedArena>(
      plan_step(model_, options, options.micro_batch, batch.sequence_length, ranks_, count).memory,
      device_of(compute_device()));
  arena_key_ = key;
  return *arena_;
}

namespace {

/// Sources of the mixture that the batch numbers: all ranks see the same batch.
size_t source_count(const data::Batch& batch) {
  int32_t last = 0;
  for (const data::RowOrigin& origin : batch.origins) last = std::max(last, origin.source);
  return static_cast<size_t>(last) + 1;
}

}  // namespace

uint64_t StepRunner::digest_of_share(const data::Batch& batch, StepOptions options, int64_t further) {
  INGOT_CHECK(reducer_ != nullptr, "one of the ranks of a run takes digests");
  Digest digest;
  options.own_digest = &digest;
  options.profile = nullptr;
  reducer_->sums = false;
  start_share(batch, options, further)->reads.finish();
  reducer_->sums = true;
  return digest.value();
}

std::unique_ptr<StartedStep> StepRunner::start_share(const data::Batch& batch, const StepOptions& asked,
                                                     int64_t further) {
  StepOptions options = asked;
  const RankGroups* groups = ranks_.groups;
  options.has_places = (groups == nullptr || groups->world().size() == 1) && ranks_.pipe == nullptr &&
                       MicroGraphs::take(model_, batch, asked, device_of(compute_device()));
  const int64_t ranks = groups != nullptr ? groups->batch_ranks() : 1,
                rank = groups != nullptr ? (groups->batch_rank() + further) % ranks : 0;
  INGOT_CHECK(options.micro_batch > 0 && batch.rows % (options.micro_batch * ranks) == 0,
              "{} rows in micro-batches of {} on {} ranks", batch.rows, options.micro_batch, ranks);
  const int64_t count = batch.rows / (ranks * options.micro_batch);
  PlannedArena& arena = prepare_arena(batch, options, count);
  gradients_.begin_step();
  const StepTokens tokens{batch.rows * batch.sequence_length, batch.loss_divisor()};
  std::unique_ptr<StartedStep> step(new StartedStep{shifted_targets(batch, model_.config().mtp),
                                                    RunningCounts(model_),
                                                    {},
                                                    StepReads(device_of(compute_device())),
                                                    tokens.all});
  StepStats& stats = step->stats;
  stats.divisor = tokens.divisor;
  stats.sums.resize(options.objective->sums.size());
  stats.mtp.resize(step->mtp.size());
  for (const int64_t layer : model_.decoder().moe_layers()) {  // those of other stages too
    stats.expert_counts[layer].resize(static_cast<size_t>(model_.config().moe.experts));
    stats.router_entropy[layer] = 0;
    if (const size_t n = source_count(batch); n > 1)
      stats.source_expert_counts[layer].resize(n * static_cast<size_t>(model_.config().moe.experts));
  }
  for (int64_t layer = 0; layer < model_.config().layers; ++layer) stats.residual_square[layer] = 0;
  const TapeOptions how = tape_options(options, &gradients_, compute_device(), world_of(ranks_));
  const PipelineStepMaker make = [&](Tape& tape, int b) {
    const int64_t first = (rank * count + b) * options.micro_batch;
    return std::make_unique<MicroStep>(
        model_, tape, share(micro_batch(batch, first, options.micro_batch, step->mtp, groups)), options,
        tokens, &stats, step->running, step->reads);
  };
  if (options.has_places) {
    run_in_places(batch, options, arena, count, tokens, *step);
    return step;
  }
  if (reducer_) reducer_->own_digest = options.own_digest;
  if (reducer_) reducer_->begin_step(count);
  if (ranks_.pipe != nullptr) {
    arena.restart();
    run_pipeline(model_, ranks_, make_pipeline_schedule(ranks_.schedule, shape_of(*ranks_.pipe, count)), make,
                 options.micro_batch * batch.sequence_length, how, arena, {reducer_.get()});
  } else {
    for (int b = 0; b < count; ++b) {
      arena.restart();
      Tape tape(arena, how);
      const auto passes = make(tape, b);
      passes->forward(whole_model(model_.config()), {});
      Backward(tape).run();
      if (reducer_) reducer_->end_micro_batch();
    }
  }
  if (reducer_) reducer_->finish();
  return step;
}

/// Of one rank, whose gradients are those of the step.
void StepRunner::run_in_places(const data::Batch& batch, const StepOptions& options, PlannedArena& arena,
                               int64_t count, const StepTokens& tokens, StartedStep& step) {
  Device& device = device_of(compute_device());
  if (!graphs_)
    graphs_ = std::make_unique<MicroGraphs>(model_, gradients_, device,
                                            options.micro_batch * batch.sequence_length);
  const TapeOptions how = tape_options(options, &gradients_, compute_device());
  const MicroGraphs::Step in{options, how, arena, tokens, step.stats, step.running, step.reads};
  graphs_->begin_step(options);
  for (int64_t b = 0; b < count; ++b)
    graphs_->run(share(micro_batch(batch, b * options.micro_batch, options.micro_batch, step.mtp)), in);
  if (reducer_ == nullptr || options.own_digest == nullptr) return;
  reducer_->own_digest = options.own_digest;
  reducer_->begin_step(count);
  reducer_->finish();
}

StepStats StepRunner::finish(StartedStep& step) const {
  step.reads.finish();
  StepStats& stats = step.stats;
  if (ranks_.groups != nullptr) combine(*ranks_.groups, ranks_.pipe, stats);
  for (auto* sums : {&stats.router_entropy, &stats.residual_square})
    for (auto& [layer, sum] : *sums) sum /= static_cast<double>(step.tokens);
  return std::move(stats);
}

std::pair<double, int64_t> StepRunner::evaluate(const data::Batch& batch) {
  HeadStats stats;
  const auto step = [&](Tape& tape, int64_t first, int64_t count) {
    return std::make_unique<EvaluationStep>(model_, tape, micro_batch(batch, first, count, {}, ranks_.groups),
                                            stats);
  };
  Device& device = device_of(compute_device());
  BorrowedArena arena(arena_ ? arena_->idle() : std::span<std::byte>(), heap_, device);
  if (ranks_.pipe != nullptr) {  // a sequence at a time, so that all stages have work
    run_pipeline(
        model_, ranks_, make_forward_schedule(shape_of(*ranks_.pipe, batch.rows)),
        [&](Tape& tape, int b) { return step(tape, b, 1); }, batch.sequence_length, forward_only(ranks_),
        arena);
  } else {
    Tape tape(arena, forward_only(ranks_));
    step(tape, 0, batch.rows)->forward(whole_model(model_.config()), {});
  }
  return {stats.nll, stats.valid};
}

}  // namespace ingot
