// The forward and backward passes of one optimizer step: micro-batches through the tape, gradients summed
// into the gradient buffer, statistics collected. The same code runs on the null device, where it yields the
// memory plan and the work.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "optim/param.h"
#include "parallel/gradient_reducer.h"
#include "parallel/weight_gatherer.h"
#include "train/micro_graphs.h"
#include "train/recipe.h"

namespace ingot {

/// The trainable parameters of a weight set with their gradients, as the optimizer takes them: it reads
/// `gradients` in every step, so both must outlive it. `groups`: tensor ranks may shard a matrix. `shards`:
/// the ranges that this rank updates.
std::vector<ParamView> optimizer_views(const WeightSet& weights, const GradientBuffer& gradients,
                                       const RankGroups* groups = nullptr, const Shards* shards = nullptr);

/// Bytes and work of one micro-batch, or of a pipeline's step, from the null device.
struct StepPlan {
  int64_t micro_batches = 1;  ///< that were run
  MemoryPlan memory;
  int64_t peak_bytes = 0;  ///< largest sum of live buffers
  int64_t held_bytes = 0;  ///< what the first micro-batch holds between its passes, at least
  std::map<std::string, int64_t> categories;  ///< at the peak
  int64_t gathered_weight_bytes = 0;          ///< at most, of other ranks' weights (ShardLevel::full)
  TapeProfile work;                           ///< calls and FLOPs by op
  double flops() const;
};

/// A rank's position among those of a run; by default it is alone.
struct StepRanks {
  const RankGroups* groups = nullptr;
  /// nullptr: micro-batches run one after the other through the whole model.
  const PipelineGroups* pipe = nullptr;
  PipelineScheduleKind schedule = PipelineScheduleKind::one_forward_one_backward;
  WeightGatherer* gatherer = nullptr;  ///< where weights are sharded
};

/// Who is told what a plan's passes do.
struct PlanObservers {
  TapeObserver* tape = nullptr;
  ScheduleObserver* schedule = nullptr;  ///< of a pipeline
};

/// Runs what this rank has of one micro-batch of `sequences` x `length` tokens on the null device; in a
/// pipeline, of a step of `micro_batches` of them.
StepPlan plan_step(const Model& model, const StepOptions& options, int64_t sequences, int64_t length,
                   const StepRanks& ranks = {}, int64_t micro_batches = 1,
                   const PlanObservers& observers = {});

/// Records the forward pass of one micro-batch on the null device and shows its tape.
void record_forward(const Model& model, const StepOptions& options, int64_t sequences, int64_t length,
                    const std::function<void(const Tape&)>& show);

/// Forward only: the log-probability of every target of a batch, which is the whole one on every rank; [B*S],
/// 0 where there is no target. Rows are run `micro_batch` at a time. All ranks return the same. Not for
/// context ranks, which share sequences. logit_scale: Objective::logit_scale.
std::vector<float> logprobs(const Model& model, const StepRanks& ranks, const data::Batch& batch,
                            int64_t micro_batch, float logit_scale = 1);

/// A step whose passes have been asked for. The batch must outlive it.
struct StartedStep {
  std::vector<ShiftedTargets> mtp;
  RunningCounts running;
  StepStats stats;  ///< of this rank; complete once `reads` are finished
  StepReads reads;
  int64_t tokens = 0;  ///< of the step, on all ranks
};

class StepRunner {
 public:
  /// All must outlive this. One of several ranks runs its share of every batch.
  StepRunner(Model& model, GradientBuffer& gradients, const StepRanks& ranks = {});
  /// Forward and backward of a batch, which is the whole one on every rank. Gradients are sums (not means)
  /// over the valid tokens of all ranks; a sharded gradient has values in this rank's shard only. All ranks
  /// return the same statistics.
  StepStats run(const data::Batch& batch, const StepOptions& options) {
    return finish(*start(batch, options));
  }
  /// The same in two parts: on a device the host waits in the second one alone, unless the objective is the
  /// host's or a balance loss sums over micro-batches (AuxScope::global).
  std::unique_ptr<StartedStep> start(const data::Batch& batch, const StepOptions& options) {
    return start_share(batch, options, 0);
  }
  StepStats finish(StartedStep& step) const;
  /// Forward and backward of the share of the batch that is `further` data ranks on, without the sum over
  /// ranks: the digest of its gradient, as StepOptions::own_digest takes it. Called by all ranks with one
  /// `further`, by which groups of ranks that exchange tokens must meet such groups. The gradients of the
  /// step before are lost.
  uint64_t digest_of_share(const data::Batch& batch, StepOptions options, int64_t further);
  /// Forward only: the sum of -logprob over the valid targets that this rank has of these sequences, and
  /// their number. In a pipeline the last stage has them, the others have zeros.
  std::pair<double, int64_t> evaluate(const data::Batch& batch);
  /// logprobs() of this model, in the bits of run().
  std::vector<float> logprobs(const data::Batch& batch, int64_t micro_batch) {
    return ingot::logprobs(model_, ranks_, batch, micro_batch);
  }
  /// Frees the planned memory; the next run() allocates it anew. For work between steps that needs memory of
  /// its own.
  void release_memory() {
    if (graphs_) graphs_->forget();
    arena_.reset();
  }
  /// How often passes ran as graphs of a device, and how often without, in the present memory.
  MicroGraphCounts graph_counts() const { return graphs_ ? graphs_->counts() : MicroGraphCounts(); }
  /// Planned activation memory of the step; 0 before the first run.
  int64_t slab_bytes() const { return arena_ ? arena_->slab_bytes() : 0; }
  /// Buffers that did not fit the plan, in the present memory.
  int64_t plan_misses() const { return arena_ ? arena_->misses() : 0; }

 private:
  /// What the memory plan of a step depends on.
  struct ArenaKey {
    int64_t micro_batches = 1, sequences = 0, length = 0;
    HeadMode head = HeadMode::store;
    bool z_loss = false, entropy = false;
    const SlotPolicy* policy = nullptr;  ///< by identity
    bool has_places = false;
    bool operator==(const ArenaKey&) const = default;
  };
  /// The passes of the share that is `further` data ranks on.
  std::unique_ptr<StartedStep> start_share(const data::Batch& batch, const StepOptions& options,
                                           int64_t further);
  void run_in_places(const data::Batch& batch, const StepOptions& options, PlannedArena& arena, int64_t count,
                     const StepTokens& tokens, StartedStep& step);
  /// The planned memory of a step of `count` micro-batches.
  PlannedArena& prepare_arena(const data::Batch& batch, const StepOptions& options, int64_t count);
  Model& model_;
  GradientBuffer& gradients_;
  StepRanks ranks_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<PlannedArena> arena_;
  ArenaKey arena_key_;
  std::unique_ptr<MicroGraphs> graphs_;  ///< where StepOptions::has_places
  HeapArena heap_{device_of(compute_device())};
};

}  // namespace ingot
