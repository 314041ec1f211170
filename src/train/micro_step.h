// One micro-batch of a training step on a tape: forward, objective, cotangents, statistics. The same code runs on the null
// device, where it yields the memory plan and the work.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "data/batch.h"
#include "models/model.h"
#include "parallel/pipeline.h"
#include "train/head_stats.h"
#include "train/objective.h"
#include "train/shifted_targets.h"

namespace ingot {

/// Rows of a batch as the tape wants them. `first` and `rows` count sequences.
struct MicroBatch {
  BatchLayout rows;
  Tensor ids, targets, positions;  ///< views into the batch, or into `columns`
  struct Ahead {
    Tensor ids, targets;  ///< views into the look-ahead, or into `columns`
    double weight = 0;
  };
  std::vector<Ahead> ahead;
  std::unique_ptr<ContextRows> chunks = {};  ///< where context ranks share each sequence
  std::vector<std::vector<int32_t>> columns = {};
};
MicroBatch micro_batch(const data::Batch& batch, int64_t first, int64_t rows,
                       std::span<const ShiftedTargets> ahead = {});
/// What one of several context ranks has of it: its chunks of every sequence. One alone has all of it.
MicroBatch share_of(MicroBatch whole, int64_t sequence_length, const RankGroups& groups);

struct StepOptions {
  HeadMode head = HeadMode::store;
  int64_t micro_batch = 1;
  double z_coefficient = 0;
  const Objective* objective = find_objective("cross_entropy");  ///< others: not with HeadMode::gradient
  const SlotPolicy* policy = nullptr;
  OffloadStore* tier = nullptr;  ///< needed where the policy offloads
  TapeProfile* profile = nullptr;
  bool check_finite = false;
  TapeObserver* observer = nullptr;
};

/// The next token's sums, those of multi-token prediction, and the routers' statistics.
struct StepStats : HeadStats {
  std::vector<HeadStats> ahead;  ///< by depth
  double max_attention_logit = 0;
  std::map<int64_t, std::vector<double>> attention_logits;  ///< by layer, the largest per query head
  std::map<int64_t, std::vector<int64_t>> expert_counts;    ///< by layer, per expert
  std::map<int64_t, double> router_entropy;                 ///< mean over tokens of the routers' own entropy
  int64_t dropped_choices = 0;                              ///< of experts, by capacities and bounded rooms
};

/// Tokens of a whole step, on all ranks.
struct StepTokens {
  int64_t all = 1, valid = 1;
};

/// Forward, objective and cotangents of a whole model or of a stage; the backward pass is the caller's. Must outlive it.
class MicroStep final : public PipelineStep {
 public:
  /// `stats`: what the micro-batch adds to; nullptr: nothing is measured. Router entropies are added as sums over tokens.
  MicroStep(const Model& model, Tape& tape, MicroBatch batch, const StepOptions& options,
            const StepTokens& step, StepStats* stats);
  Context& context() override { return context_; }
  std::vector<Value> forward(const StageParts& parts, const std::vector<Value>& received = {}) override;

 private:
  /// What the backward pass reads after the heads are done.
  struct Cotangents {
    std::vector<float> row_weight;
    ObjectiveResult objective;
  };
  void predict(int64_t depth, Value hidden_TD);
  /// One head: statistics, objective times `weight`, cotangents. Releases the hidden states.
  void predict(Value hidden_TD, const Tensor& targets, double weight, Cotangents& c, HeadStats* stats);
  void seed_router_losses(const std::vector<BalanceLosses>& losses);
  void collect_metrics(StepStats& stats) const;
  /// Rows that this rank's routers see.
  int64_t router_rows() const;

  const Model& model_;
  Tape& tape_;
  const MicroBatch batch_;
  const StepOptions& options_;
  StepTokens step_;
  StepStats* stats_;
  Context context_;
  Value ids_T_;
  std::vector<Cotangents> objectives_;
  float d_aux_ = 0, d_sequence_ = 0, d_z_ = 0;
};

/// A micro-batch without a backward pass: sums of -logprob over valid targets.
class EvaluationStep final : public PipelineStep {
 public:
  EvaluationStep(const Model& model, Tape& tape, MicroBatch batch, HeadStats& stats);
  Context& context() override { return context_; }
  std::vector<Value> forward(const StageParts& parts, const std::vector<Value>& received = {}) override;

 private:
  const Model& model_;
  Tape& tape_;
  const MicroBatch batch_;
  HeadStats& stats_;
  Context context_;
  Value ids_T_;
};

}  // namespace ingot
