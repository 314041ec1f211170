// One optimizer step's forward and backward passes: micro-batches through the tape, gradients summed into the gradient
// buffer, statistics collected. The same code runs on the null device, where it yields the memory plan and the work.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "data/batch.h"
#include "models/model.h"
#include "optim/param.h"
#include "parallel/shards.h"
#include "train/look_ahead.h"
#include "train/objective.h"
#include "train/recipe.h"

namespace ingot {

/// Rows of a batch as the tape wants them. `first` and `rows` count sequences.
struct MicroBatch {
  Rows rows;
  Tensor ids, targets, positions;  ///< views into the batch
  struct Ahead {
    Tensor ids, targets;  ///< views into the look-ahead
    double weight = 0;
  };
  std::vector<Ahead> ahead;
};
MicroBatch micro_batch(const data::Batch& batch, int64_t first, int64_t rows, std::span<const LookAhead> ahead = {});

/// The trainable parameters of a weight set with their gradients, as the optimizer takes them. `groups`: matrices may be
/// cut over tensor ranks. `shards`: the parts that this rank moves.
std::vector<ParamView> optimizer_views(const WeightSet& weights, const GradientBuffer& gradients,
                                       const RankGroups* groups = nullptr, const Shards* shards = nullptr);

struct StepOptions {
  HeadMode head = HeadMode::store;
  int64_t micro_batch = 1;
  double z_coefficient = 0;
  const Objective* objective = find_objective("cross_entropy");  ///< others: not with HeadMode::gradient
  const SlotPolicy* policy = nullptr;
  OffloadTier* tier = nullptr;  ///< needed where the policy offloads
  TapeProfile* profile = nullptr;
  bool check_finite = false;
  TapeObserver* observer = nullptr;
};

/// Sums of one head over the step's tokens.
struct HeadStats {
  double nll = 0;        ///< sum of -logprob over valid tokens
  double objective = 0;  ///< what was minimised, as a sum (with z-loss)
  int64_t valid = 0;
  double lse = 0;  ///< sum of logsumexp over valid tokens
  double loss() const { return valid > 0 ? nll / static_cast<double>(valid) : 0; }
};

/// The next token's sums, those of multi-token prediction, and the routers' statistics.
struct StepStats : HeadStats {
  std::vector<HeadStats> ahead;  ///< by depth
  double max_attention_logit = 0;
  std::map<int64_t, std::vector<double>> attention_logits;  ///< by layer, the largest per query head
  std::map<int64_t, std::vector<int64_t>> expert_counts;  ///< by layer, per expert
  std::map<int64_t, double> router_entropy;               ///< mean over tokens of the routers' own entropy
};

/// Bytes and work of one micro-batch, from the null device.
struct StepPlan {
  MemoryPlan memory;
  int64_t peak_bytes = 0;                     ///< largest sum of live buffers
  std::map<std::string, int64_t> categories;  ///< at the peak
  TapeProfile work;                           ///< calls and FLOPs by op
  double flops() const;
};

/// Runs one micro-batch of `sequences` x `length` tokens on the null device.
StepPlan plan_step(const Model& model, const StepOptions& options, int64_t sequences, int64_t length);

class StepRunner {
 public:
  /// `groups`: this rank is one of several and runs its share of every batch; nullptr: it runs all.
  StepRunner(Model& model, GradientBuffer& gradients, const RankGroups* groups = nullptr);
  /// Forward and backward of a batch; gradients are sums over valid tokens (not divided), of this rank's share and not yet
  /// summed over ranks. `batch` is the whole one on every rank, and so are the statistics.
  StepStats run(const data::Batch& batch, const StepOptions& options);
  /// Forward only: sum of -logprob over valid targets, and their number, of these rows on this rank.
  std::pair<double, int64_t> evaluate(const data::Batch& batch);
  /// Bytes of the step's slab (0 before the first run).
  int64_t slab_bytes() const { return arena_ ? arena_->slab_bytes() : 0; }
  int64_t plan_misses() const { return arena_ ? arena_->misses() : 0; }

 private:
  void prepare_arena(const data::Batch& batch, const StepOptions& options);
  Model& model_;
  GradientBuffer& gradients_;
  const RankGroups* groups_;
  std::unique_ptr<PlannedArena> arena_;
  std::string arena_key_;
  HeapArena heap_;
};

}  // namespace ingot
