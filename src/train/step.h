// One optimizer step's forward and backward passes: micro-batches through the tape, gradients summed into the gradient
// buffer, statistics collected. The same code runs on the null device, where it yields the memory plan and the work.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "optim/param.h"
#include "parallel/gradient_reducer.h"
#include "parallel/weight_gatherer.h"
#include "train/micro_step.h"
#include "train/recipe.h"

namespace ingot {

/// The trainable parameters of a weight set with their gradients, as the optimizer takes them. `groups`: matrices may be
/// cut over tensor ranks. `shards`: the parts that this rank moves.
std::vector<ParamView> optimizer_views(const WeightSet& weights, const GradientBuffer& gradients,
                                       const RankGroups* groups = nullptr, const Shards* shards = nullptr);

/// Bytes and work of one micro-batch, or of a pipeline's step, from the null device.
struct StepPlan {
  int64_t micro_batches = 1;  ///< that were run
  MemoryPlan memory;
  int64_t peak_bytes = 0;                     ///< largest sum of live buffers
  std::map<std::string, int64_t> categories;  ///< at the peak
  int64_t weights_on_way = 0;                 ///< of other ranks, that come and go (ShardLevel::full)
  TapeProfile work;                           ///< calls and FLOPs by op
  double flops() const;
};

/// A rank's place among those of a run; by default it is alone.
struct StepRanks {
  const RankGroups* groups = nullptr;
  const PipelineGroups* pipe =
      nullptr;  ///< nullptr: micro-batches run one after the other through the whole model
  PipelineScheduleKind schedule = PipelineScheduleKind::one_forward_one_backward;
  WeightGatherer* gatherer = nullptr;  ///< where weights are shared out
};

/// Runs this rank's part of one micro-batch of `sequences` x `length` tokens on the null device; in a pipeline its part of a
/// step of so many of them.
StepPlan plan_step(const Model& model, const StepOptions& options, int64_t sequences, int64_t length,
                   const StepRanks& ranks = {}, int64_t micro_batches = 1);

class StepRunner {
 public:
  /// One of several ranks runs its share of every batch.
  StepRunner(Model& model, GradientBuffer& gradients, const StepRanks& ranks = {});
  /// Forward and backward of a batch; gradients are sums over valid tokens (not divided) of all ranks, where they are
  /// shared out in this rank's share only. `batch` is the whole one on every rank, and so are the statistics.
  StepStats run(const data::Batch& batch, const StepOptions& options);
  /// Forward only: sum of -logprob over valid targets, and their number, of what this rank has of these rows; in a pipeline
  /// the last stage knows them, the others have zeros.
  std::pair<double, int64_t> evaluate(const data::Batch& batch);
  /// Bytes of the step's slab (0 before the first run).
  int64_t slab_bytes() const { return arena_ ? arena_->slab_bytes() : 0; }
  int64_t plan_misses() const { return arena_ ? arena_->misses() : 0; }

 private:
  /// This rank's part of rows [first, first + count) of the batch.
  MicroBatch part_of(const data::Batch& batch, int64_t first, int64_t count,
                     std::span<const ShiftedTargets> ahead) const;
  /// The memory of a step of `count` micro-batches.
  PlannedArena& prepare_arena(const data::Batch& batch, const StepOptions& options, int64_t count);
  Model& model_;
  GradientBuffer& gradients_;
  StepRanks ranks_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<PlannedArena> arena_;
  std::string arena_key_;
  HeapArena heap_;
};

}  // namespace ingot
