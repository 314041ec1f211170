// Many ranks against one: a small model, its step on one rank, and the same micro-batches as steps of a rank.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/reference.h"
#include "parallel/ownership.h"
#include "parallel/pipeline.h"
#include "parallel/rank_groups.h"
#include "support/small_models.h"
#include "train/step.h"

namespace ingot::test {

using reference::Array;

/// A small model's training step, which any number of ranks can compute.
struct ParityProblem {
  std::string model;   ///< a name of small_models.h
  int64_t layers = 0;  ///< 0: as many as the small model has
  int64_t rows = 4;    ///< sequences of the whole batch, a multiple of 4
  /// Every output that backward reads is recomputed, except the streams of every other layer.
  bool recompute = false;
  bool starve = false;     ///< every token goes to the first experts
  bool mask_last = false;  ///< the last half of the rows has no valid target
  bool own_load = false;   ///< balance losses use the micro-batch's load instead of a given one
  Precision precision = Precision::f64();
};
constexpr int64_t kParityLength = 16;

/// Given inputs of a layer's routers in a step. Empty: none are given.
struct RouterFeed {
  std::vector<int32_t> ids;  ///< [T, k] of the whole batch: routes to replay
  std::vector<float> load;   ///< of the step before
  std::vector<float> bias;
};

/// The data of a step.
struct ParityInputs {
  data::Batch batch;
  std::vector<ShiftedTargets> ahead;  ///< of multi-token prediction
  std::map<int64_t, RouterFeed> routers;
  bool replay = true;  ///< false: routers choose, and what differs from the feed's routes is counted
};
/// Documents of many lengths, so that ranks have different numbers of valid targets; `seed` draws the tokens.
ParityInputs parity_inputs(const ParityProblem& problem, const Decoder& decoder, uint64_t seed = 9);

/// Of one rank's share, until summed over the ranks.
struct ParityOutcome {
  double nll = 0;
  std::map<int64_t, Array> counts;      ///< router counts by layer
  std::map<int64_t, Array> balance, z;  ///< the routers' losses by layer, means over the batch's tokens
  std::map<int64_t, std::vector<int32_t>> ids;  ///< routes, in the order of the micro-batches
  int64_t routed = 0, rerouted = 0;             ///< tokens, and those whose routes are not the feed's
  double square_sum = 0;                        ///< of all gradients
};

/// Rows [first, first + count) of the batch, on a tape of any device; gradients are of the mean loss over the
/// whole batch. The objective: next token, with multi-token prediction the tokens ahead, and the routers'
/// losses.
class ParityStep final : public PipelineStep {
 public:
  ParityStep(const Decoder& decoder, const ParityInputs& inputs, const WeightSet& weights, Tape& tape,
             int64_t first, int64_t count, const RankGroups* groups, ParityOutcome& outcome);
  Context& context() override { return context_; }
  std::vector<Value> forward(const StageParts& parts, const std::vector<Value>& received) override;

 private:
  void predict(int64_t depth, Value hidden_TD);
  void losses(const std::vector<BalanceLosses>& balance);
  bool dry() const { return tape_.options().device == DeviceKind::null; }
  void cut_sequences(const RankGroups& groups);
  void feed_routers(int64_t first, const RankGroups* groups);
  void collect(const Metric& m);
  void seed(const Value& v, double cotangent);

  const Decoder& decoder_;
  const ParityInputs& inputs_;
  Tape& tape_;
  MicroBatch batch_;
  std::optional<ContextRows> context_rows_;
  std::vector<int32_t> columns_[3];                 ///< ids, targets and positions of a context rank
  std::map<int64_t, std::vector<int32_t>> routes_;  ///< of the tokens that this rank's routers see
  Context context_;
  Value ids_T_;
  double share_ = 0;  ///< of the batch's tokens that this rank's routers see
  ParityOutcome& outcome_;
  std::vector<Buffer> cotangents_;
};

/// Tape options of a problem.
TapeOptions parity_tape(const ParityProblem& problem, GradientSink* sink);
/// The step of one rank that has everything, as one micro-batch.
ParityOutcome one_rank_step(const ParityProblem& problem, const Decoder& decoder, const ParityInputs& inputs,
                            const WeightSet& weights, GradientBuffer& gradients);

/// The problem's step on one rank, which the layouts' results are compared with.
struct OneRank {
  explicit OneRank(const ParityProblem& problem);
  /// Checks that a rank's initial weights (those that it keeps) have the one rank's bits, then sets them to
  /// those of the problem.
  void give_weights(WeightSet& weights) const;
  /// Every gradient of a rank (the elements that it keeps) differs from the one rank's by at most 1e-9 (in
  /// fp32 1e-5) of the parameter's largest element. A gradient below 1e-6 (in fp32 1e-3; for ZAYA's
  /// temperatures, sums over all rows and channels, 1e-2) of the model's largest has lost digits to
  /// cancellation and is compared relative to that bound.
  void expect_gradients(const GradientBuffer& gradients, const Placement& placement, int rank) const;
  bool in_double() const { return problem.precision.stream == DType::f64; }

  ParityProblem problem;
  Decoder decoder;
  ParityInputs inputs;
  std::vector<Array> initial, start, gradients;  ///< by parameter
  ParityOutcome outcome;
  double largest_gradient = 0;
};

/// The elements of parameter i that a rank keeps: all of them unless ranks shard the parameter.
ElementRange kept(const FlatLayout& layout, int i, DType type);
/// These elements of a tensor, as one row.
Tensor part_of(const Tensor& tensor, const ElementRange& range);
/// A rank's shard of a global tensor, as its parameter is sharded.
Array part_of(const ParameterSpec& spec, const Placement& placement, const Array& global);
void all_reduce(Communicator& group, Array& values);

}  // namespace ingot::test
