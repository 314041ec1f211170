// Many ranks against one: a small model in double, its step on one rank, and the same micro-batches as steps
// of a rank.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/reference.h"
#include "parallel/pipeline.h"
#include "parallel/rank_groups.h"
#include "support/small_models.h"
#include "train/step.h"

namespace ingot::test {

using reference::Array;

/// What is computed, on however many ranks.
struct ParityProblem {
  std::string model;       ///< of small_models.h
  int64_t layers = 0;      ///< 0: as the small model
  int64_t rows = 4;        ///< sequences of the whole batch, a multiple of 4
  bool recompute = false;  ///< every output that backward reads is computed again
  bool starve = false;     ///< every token goes to the first experts
  bool mask_last = false;  ///< the last half of the rows has no valid target
};
constexpr int64_t kParityLength = 12;

struct ParityOutcome {
  double nll = 0;
  std::map<int64_t, Array> counts;  ///< router counts by layer
  double square_sum = 0;            ///< of all gradients
};

/// The problem's step on one rank: what the others must find.
struct OneRank {
  explicit OneRank(const ParityProblem& problem);
  /// Weights of a rank: first checks that their initial values are the one rank's bits, then sets those of
  /// the problem.
  void give_weights(WeightSet& weights) const;
  /// Every gradient of a rank, relative to the largest element of the parameter's, at most 1e-9 from the one
  /// rank's.
  void expect_gradients(const GradientBuffer& gradients, const Placement& placement, int rank) const;

  ParityProblem problem;
  Decoder decoder;
  data::Batch batch;
  std::vector<LookAhead> ahead;                  ///< of multi-token prediction
  std::vector<int32_t> forced;                   ///< routes to replay, [T, k]; empty: none
  std::map<int64_t, std::vector<float>> load;    ///< the routers' loads of the step before
  std::vector<Array> initial, start, gradients;  ///< by parameter
  ParityOutcome outcome;
  double largest_gradient = 0;
};

/// Rows [first, first + count) of the batch, on a tape of any device; gradients are of the mean loss over the
/// whole batch. The objective: next token, with multi-token prediction the tokens ahead, and the routers'
/// losses.
class ParityStep final : public StageStep {
 public:
  ParityStep(const OneRank& one, const WeightSet& weights, Tape& tape, int64_t first, int64_t count,
             const RankGroups* groups, ParityOutcome& outcome);
  Context& context() override { return context_; }
  Value ids_T() override { return ids_T_; }
  void losses(DecoderOutput& out) override;

 private:
  bool dry() const { return tape_.options().device == DeviceKind::null; }
  void predict(DecoderOutput& out, const Tensor& targets, double weight);

  const OneRank& one_;
  Tape& tape_;
  MicroBatch batch_;
  Context context_;
  Value ids_T_;
  ParityOutcome& outcome_;
  std::vector<std::unique_ptr<Array>> cotangents_;
};

/// Tape options of a problem.
TapeOptions parity_tape(const ParityProblem& problem, GradientSink* sink);

/// A rank's part of a global tensor, cut by the pieces of its parameter.
Array part_of(const ParameterSpec& spec, const Placement& placement, const Array& global);
void all_reduce(Communicator& group, Array& values);

}  // namespace ingot::test
