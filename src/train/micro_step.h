// One micro-batch of a training step on a tape: forward, objective, cotangents of the losses, statistics. The
// same code runs on the null device, where it yields the memory plan and the work. Shape letters: T rows
// (tokens) of the micro-batch on this rank, D model width, E experts.
#pragma once
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/digest.h"
#include "data/batch.h"
#include "models/model.h"
#include "optim/step_sums.h"
#include "parallel/pipeline.h"
#include "train/head_stats.h"
#include "train/objective.h"
#include "train/shifted_targets.h"
#include "train/step_reads.h"

namespace ingot {

/// What a module of multi-token prediction reads; see ShiftedTargets.
struct MtpInputs {
  Tensor ids, targets;  ///< i32 [T]
  double weight = 0;    ///< of its loss
};

/// Sequences of a batch as the tape takes them.
struct MicroBatch {
  BatchLayout rows;
  Tensor ids, targets, positions;            ///< i32 [T], views into the batch or into `columns`
  Tensor sources;                            ///< i32 [T], of each row's sequence
  ColumnSpans given = {};                    ///< the batch's columns of these tokens
  double baseline = 0;                       ///< Batch::baseline
  std::vector<Tensor> routes = {};           ///< i32 [T, top_k] by MoE layer, where they are replayed
  Tensor allowed = {}, allowed_ids = {};     ///< Batch::allowed: i32 [T, 2], [N]; undefined: all ids
  std::vector<MtpInputs> mtp;                ///< by depth, 1 first
  std::unique_ptr<ContextRows> chunks = {};  ///< where context ranks share each sequence
  std::vector<std::vector<int32_t>> columns =
      {};  ///< this rank's chunks of the columns, floats by their bits
};
/// `count` sequences of a batch from the `first` on; where `groups` has several context ranks, this rank's
/// chunks of each. Keeps views into `batch` and `mtp`.
MicroBatch micro_batch(const data::Batch& batch, int64_t first, int64_t count,
                       std::span<const ShiftedTargets> mtp = {}, const RankGroups* groups = nullptr);

/// How the micro-batches of a step run.
struct StepOptions {
  HeadMode head = HeadMode::store;
  int64_t micro_batch = 1;  ///< sequences
  double z_coefficient = 0;
  /// HeadMode::gradient takes those whose cotangents are known.
  std::shared_ptr<const Objective> objective = find_objective("cross_entropy");
  const SlotPolicy* policy = nullptr;     ///< nullptr keeps every activation
  OffloadStore* offload_store = nullptr;  ///< needed where the policy offloads
  TapeProfile* profile = nullptr;
  bool check_finite = false;  ///< Error that names the first op with a NaN or infinity
  TapeObserver* observer = nullptr;
  const StepSums* sums = nullptr;  ///< which a step adds to on the device; nullptr: none
  bool has_places = false;         ///< inputs of micro-batches are in MicroPlaces, not in the tape's memory
  Digest* own_digest = nullptr;    ///< see GradientReducer::own_digest
};

/// The next token's sums, those of multi-token prediction, and the routers' statistics.
struct StepStats : HeadStats {
  std::vector<HeadStats> mtp;  ///< by depth
  double max_attention_logit = 0;
  std::map<int64_t, std::vector<double>> attention_logits;  ///< by layer, the largest per query head
  std::map<int64_t, std::vector<int64_t>> expert_counts;    ///< by layer, per expert
  /// By layer, per source of the mixture and expert: [source * E + expert]. Empty with one source.
  std::map<int64_t, std::vector<int64_t>> source_expert_counts;
  std::map<int64_t, double> router_entropy;  ///< mean over tokens of the routers' own entropy
  std::map<int64_t, double>
      residual_square;          ///< by layer: mean over tokens and channels of the stream's square
  int64_t dropped_choices = 0;  ///< of experts, by capacities
  double divisor = 1;           ///< of the summed loss: Batch::loss_divisor()
  std::vector<double> sums;     ///< as the objective names them (Objective::sums)
  /// Valid targets with a recorded log-probability (TokenColumns::recorded), and those of them whose own one
  /// has other bits.
  int64_t compared = 0, unequal = 0;
};

/// A whole step, on all ranks: its tokens, and what its summed loss is divided by.
struct StepTokens {
  int64_t all = 1;
  double divisor = 1;
};

/// Cotangents of a router's losses.
struct RouterSeeds {
  float aux = 0, sequence = 0, z = 0;
};

/// AuxScope::global: the choices of each expert in the micro-batches of a step so far, on all ranks. A
/// layer's micro-batches run forward one after the other, so each takes what its predecessors left.
class RunningCounts {
 public:
  explicit RunningCounts(const Model& model);
  /// Whether the model's balance loss needs any of this.
  bool used() const { return !layers_.empty(); }
  /// By MoE layer, f32 [E + 1] as RouterInputs::earlier_E1; whole numbers, exact up to 2^24.
  const std::map<int64_t, std::vector<float>>& layers() const { return layers_; }
  /// Adds a micro-batch's choices.
  void add(int64_t layer, std::span<const double> choices_E);

 private:
  std::map<int64_t, std::vector<float>> layers_;
};

struct MicroRead;   // train/micro_stats.h
struct MicroStats;  // train/micro_stats.h
class MicroPlaces;  // train/micro_places.h

/// Forward, objective and cotangents of a whole model or of a pipeline stage. The caller runs the backward
/// pass, which this must outlive.
class MicroStep final : public PipelineStep {
 public:
  /// The micro-batch adds to `stats`, router entropies as sums over tokens, when `reads` has the values;
  /// nullptr measures nothing, and `running` stays as it is. `places`: where StepOptions::has_places; the
  /// micro-batch was put there, and the values are read there, too.
  MicroStep(const Model& model, Tape& tape, std::shared_ptr<const MicroBatch> batch,
            const StepOptions& options, const StepTokens& step, StepStats* stats, RunningCounts& running,
            StepReads& reads, MicroPlaces* places = nullptr);
  Context& context() override { return context_; }
  std::vector<Value> forward(const StageParts& parts, const std::vector<Value>& received = {}) override;

 private:
  /// What the backward pass reads of one head.
  struct Cotangents {
    std::vector<float> row_weight;
    ObjectiveResult objective;
    bool is_late = false;  ///< the objective is evaluated at the end of the step; backward needs none of it
  };
  /// What one head predicts. Modules of multi-token prediction have depth, targets and weight alone.
  struct Prediction {
    int64_t depth;
    Tensor targets;
    double weight = 1;  ///< of its loss
    ColumnSpans columns = {};
    float logit_scale = 1;
    HeadAllowed allowed = {};
  };
  void predict(int64_t depth, Value hidden_TD);
  /// One head: statistics, objective, cotangents. Releases the hidden states.
  void run_head(Value hidden_TD, const Prediction& what, Cotangents& c, HeadStats* stats);
  /// Reads values at the end of the step.
  void read(const MicroRead& what, std::initializer_list<Tensor> values);
  /// Sets the cotangent of a router's loss: a scalar of the host, or where the places have it.
  void seed_loss(const Value& loss, const float& cotangent, Tensor place);
  /// Adds a metric to the sums of its layer, if they have some for it.
  void sum_on_device(const Metric& metric) const;
  void seed_router_losses(const std::vector<BalanceLosses>& losses);
  void collect_metrics();
  /// Gives the routers what earlier micro-batches chose, as it is now.
  void take_running_counts();
  /// Rows that this rank's routers see.
  int64_t router_rows() const;

  const Model& model_;
  Tape& tape_;
  const std::shared_ptr<const MicroBatch> shared_;
  const MicroBatch& batch_ = *shared_;
  const StepOptions& options_;
  StepTokens step_;
  StepStats* stats_;
  RunningCounts& running_;
  StepReads& reads_;
  MicroPlaces* const places_;
  std::shared_ptr<const MicroStats> counts_;
  std::map<int64_t, std::vector<float>> earlier_;  ///< what this micro-batch found in running_
  Context context_;
  Value ids_T_;
  std::vector<Cotangents> objectives_;
  RouterSeeds seeds_;
};

/// A micro-batch without a backward pass: sums of -logprob over valid targets, and each of them where
/// `logprobs` has a place for every token. logit_scale: Objective::logit_scale.
class EvaluationStep final : public PipelineStep {
 public:
  EvaluationStep(const Model& model, Tape& tape, MicroBatch batch, HeadStats& stats,
                 std::span<float> logprobs = {}, float logit_scale = 1);
  Context& context() override { return context_; }
  std::vector<Value> forward(const StageParts& parts, const std::vector<Value>& received = {}) override;

 private:
  const Model& model_;
  Tape& tape_;
  const MicroBatch batch_;
  HeadStats& stats_;
  std::span<float> logprobs_;
  float logit_scale_;
  Context context_;
  Value ids_T_;
};

}  // namespace ingot
