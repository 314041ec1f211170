// FSDP weight gathering ([FSDP], ShardLevel::full): all-gathers the buckets of a layer group just before the
// first op that reads them, prefetches those of the next layer group, and frees those of a finished one.
//
// Ops ask for each parameter that they read (ParameterGatherer), so any order works: a bucket that was freed
// is gathered again. At most three layer groups are in memory: that of the op which runs, the previous one,
// and the prefetched one.
//
// Without a pipeline, layer groups are prefetched in the direction of the last step: forward or backward. In
// a pipeline the schedule says which layer groups a pass will read: the next one of the pass is prefetched,
// and in its last one the first of the pass to come, of whatever chunk. Each of two interleaved passes
// (interleaved_passes.h) has its own three layer groups, since either may be waiting inside of an op that
// reads weights.
//
// The tapes and schedules of all ranks of a shard group are alike, so all gather the same buckets in the same
// order. Belongs to the thread that runs the tapes, or to interleaved passes, of which one runs at a time.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "parallel/pipeline_groups.h"
#include "parallel/pipeline_schedule.h"
#include "parallel/shards.h"

namespace ingot {

class WeightGatherer final : public ParameterGatherer, public ScheduleObserver {
 public:
  /// Calls weights.set_gatherer(). All arguments must outlive this. `pipe`: where a schedule is observed.
  WeightGatherer(const RankGroups& groups, WeightSet& weights, const PipelineGroups* pipe = nullptr);
  ~WeightGatherer() override;
  WeightGatherer(const WeightGatherer&) = delete;
  WeightGatherer& operator=(const WeightGatherer&) = delete;

  void use(int parameter) override;
  void before_entry(std::span<const ScheduleEntry> entries) override;
  void after_entry(const ScheduleEntry& entry) override;
  /// Before weights change: waits for gathers in flight and frees all buckets.
  void reshard_all();

  /// By bucket: how often it was gathered so far.
  const std::vector<int64_t>& gathers() const { return gathers_; }
  /// How many of all gathers were prefetches.
  int64_t prefetched() const { return prefetched_; }
  /// Peak bytes of other ranks' weights.
  int64_t peak_bytes() const { return peak_bytes_; }

  /// What a schedule takes, without memory and messages. Exact where a pass reads every layer group of its
  /// chunk in order and interleaved passes do not yield; else peak_bytes is the sum over both passes.
  struct Plan {
    std::vector<int64_t> gathers;
    int64_t peak_bytes = 0;
  };
  static Plan plan(const RankGroups& groups, const WeightSet& weights, const PipelineGroups& pipe,
                   std::span<const ScheduleEntry> table);

 private:
  enum class State : uint8_t { sharded, gathering, unsharded };
  /// The layer groups of one pass.
  struct Pass {
    /// In the order in which the pass will read them; empty: not known.
    std::vector<int64_t> order = {};
    /// How many of them it has reached.
    size_t reached = 0;
    /// The first layer group of the pass to come.
    std::optional<int64_t> next_pass = {};
    /// The layer groups in memory: previous, current, prefetched.
    std::optional<int64_t> previous = {}, current = {}, next = {};
  };
  /// `memory`: nullptr for a dry run.
  WeightGatherer(const RankGroups& groups, const WeightSet& weights, WeightSet* memory,
                 const PipelineGroups* pipe);
  bool read_in_backward(int64_t group) const;
  std::vector<int64_t> order_of(const Work& work) const;
  std::vector<Pass> passes_of(const ScheduleEntry& entry) const;
  void enter(Pass& pass, int64_t group);
  void enter_in_order(Pass& pass, int64_t group) const;
  void enter_by_direction(Pass& pass, int64_t group) const;
  static bool keeps(const Pass& pass, int64_t group);
  int64_t bytes_of(const Pass& pass) const;
  void begin_unshard(size_t bucket);
  void finish_unshard(size_t bucket);
  void reshard(size_t bucket);

  const RankGroups& groups_;
  const WeightSet& weights_;
  WeightSet* memory_;
  const PipelineGroups* pipe_;
  std::map<int64_t, std::vector<size_t>> buckets_;  ///< by layer group, those that are not empty
  std::vector<State> states_;
  std::vector<Pending> pending_;  ///< by bucket
  std::vector<Pass> passes_;
  std::vector<int64_t> gathers_;
  int64_t prefetched_ = 0, bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace ingot
