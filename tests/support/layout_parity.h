// Small models on many ranks compared with one rank; thread ranks and processes run the same comparison.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "comm/world.h"
#include "parallel/gradient_reducer.h"
#include "parallel/pipeline.h"
#include "parallel/weight_gatherer.h"
#include "support/parity.h"

namespace ingot::test {

struct LayoutCase {
  ParityProblem problem;
  GridShape grid;
  RankOptions options = {};
  std::string layout = {};  ///< pipeline layout; empty: even
  int chunks = 1;           ///< chunks of the even layout
  PipelineScheduleKind schedule = PipelineScheduleKind::one_forward_one_backward;
  int group = 0;             ///< see PipelineShape
  bool whole_batch = false;  ///< true: a rank's share is one micro-batch; false: one per sequence
  std::string name() const;  ///< for test names: letters, digits, underscores
};

/// For messages of tests.
inline void PrintTo(const LayoutCase& c, std::ostream* out) {
  *out << c.name();
}

/// The groups of a world's rank.
GroupMaker group_maker(World& world);

/// One rank's part of a model in a layout, and its steps.
class LayoutRank {
 public:
  LayoutRank(const LayoutCase& c, const OneRank& one, int rank, const GroupMaker& make);
  /// passes(), reduce() and sum_over_ranks().
  ParityOutcome step(const ParityInputs& inputs);
  /// Forward and backward of this rank's sequences. A dry run plans the first pass; every pass has the peak
  /// memory that the dry run predicts, and transient weights and gradients take no more than planned. `sums`:
  /// reductions of gradients begin, and reduce() must follow.
  ParityOutcome passes(const ParityInputs& inputs, bool sums = false);
  /// Sums the gradients over the ranks.
  void reduce();
  /// Number of buckets whose reduction overlapped with backward.
  int64_t overlapped() const { return reducer_.overlapped(); }
  /// Call it after the weights that this rank keeps have changed.
  void weights_moved();
  /// Makes the outcome that of the whole batch, except routes and layers of other stages.
  void sum_over_ranks(ParityOutcome& outcome) const;
  /// The step's ops and bytes on the null device.
  TapeProfile profile(const ParityInputs& inputs);

  const RankGroups& groups() const { return groups_; }
  const PipelineGroups& pipe() const { return pipe_; }
  const Placement& placement() const { return placement_; }
  int64_t share() const { return case_.problem.rows / groups_.batch_ranks(); }  ///< sequences of this rank
  int64_t micro_rows() const { return case_.whole_batch ? share() : 1; }        ///< sequences per micro-batch
  bool sees_loss() const { return pipe_.stage() == pipe_.stages() - 1; }
  WeightSet& weights() { return weights_; }
  const GradientBuffer& gradients() const { return gradients_; }
  const WeightGatherer* gatherer() const { return gatherer_ ? &*gatherer_ : nullptr; }
  /// The buffers that full sharding needs for a step.
  WeightGatherer::Plan unit_plan() const;

 private:
  /// True if the interleaved passes of a merged schedule yield where they wait for other ranks.
  bool hands_over() const;
  PipelineSchedule schedule() const;
  InterleavedPasses::Waits run(const ParityInputs& inputs, TapeOptions options, Arena& arena,
                               ParityOutcome& outcome, bool sums = false);
  void expect_planned_transients() const;
  double square_sum() const;

  const LayoutCase& case_;
  const OneRank& one_;
  RankGroups groups_;
  PipelineGroups pipe_;
  Placement placement_;
  WeightSet weights_;
  GradientBuffer gradients_;
  std::optional<Shards> shards_;
  std::optional<Ownership> owned_;          ///< set if ranks shard optimizer state
  std::optional<WeightGatherer> gatherer_;  ///< set if ranks shard the weights too
  Pipeline pipeline_;
  GradientReducer reducer_;
  bool reducing_ = false;
  CountingArena dry_;
  std::optional<PlannedArena> arena_;
};

/// Reduces all buckets at once, after the last micro-batch.
void reduce_gradients(const RankGroups& groups, const ParameterTable& table, GradientBuffer& gradients);

/// Runs this rank's part of the case and compares it with one rank: initial weights bit for bit; loss, routed
/// tokens, router losses, gradients and their norm; and the peak memory with the dry run's.
void expect_layout_equals_one_rank(const LayoutCase& c, const OneRank& one, World& world);

/// The cases of the parity matrix: layouts of every axis and mixes of three, dense, mixture and ZAYA1 models,
/// with and without recomputation.
std::vector<LayoutCase> parity_matrix();

}  // namespace ingot::test
