// Full sharding's weights: brings the units of a part of the model together when an op is about to read them, the next
// part's ahead of need, and gives those of parts that are done back.
//
// Parts follow each other in the order of the model going forward and in reverse going backward; whatever order comes, what
// is read is there, since an op asks (ParameterGatherer) and a unit that has gone is brought again. At most three parts are in
// memory: that of the op which runs, the one before it, and one on its way.
//
// Without a pipeline the direction shows by itself. In one the schedule says which parts a pass will read: next comes its next
// part, and in its last one the first of the pass to come, of whatever chunk. Where two passes run merged, each strand
// (strands.h) has its three parts, since either may be waiting with the weights of an op in its hands.
//
// Tapes and tables of all ranks that share are alike, so all ask for the same units in the same order. Belongs to the thread
// that runs the tapes, or to its strands, of which one runs at a time.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "parallel/pipeline_groups.h"
#include "parallel/pipeline_schedule.h"
#include "parallel/shards.h"

namespace ingot {

class WeightGatherer final : public ParameterGatherer, public TableFollower {
 public:
  /// Attaches itself to the weights. All must outlive this. `pipe`: where a table is followed.
  WeightGatherer(const RankGroups& groups, WeightSet& weights, const PipelineGroups* pipe = nullptr);
  ~WeightGatherer() override;
  WeightGatherer(const WeightGatherer&) = delete;
  WeightGatherer& operator=(const WeightGatherer&) = delete;

  void use(int parameter) override;
  void begins(std::span<const ScheduleEntry> entries) override;
  void ended(const ScheduleEntry& entry) override;
  /// Before weights change: all units are released. Waits for what is on its way.
  void release_all();

  const std::vector<int64_t>& gathers() const {
    return gathers_;
  }                                                   ///< by unit: how often it was brought so far
  int64_t prefetched() const { return prefetched_; }  ///< of all of them, ahead of need
  int64_t peak_bytes() const { return peak_bytes_; }  ///< of other ranks' weights that were here at once

  /// What a table takes, without memory and messages. Exact where every part of a chunk is read in its turn and strands
  /// do not hand over; else peak_bytes is what their parts have together.
  struct Plan {
    std::vector<int64_t> gathers;
    int64_t peak_bytes = 0;
  };
  static Plan plan(const RankGroups& groups, const WeightSet& weights, const PipelineGroups& pipe,
                   std::span<const ScheduleEntry> table);

 private:
  enum class State : uint8_t { away, coming, here };
  /// What one strand reads.
  struct Pass {
    std::vector<int64_t> route = {};   ///< the parts, as it will meet them; empty: not known
    size_t met = 0;                    ///< of them
    std::optional<int64_t> then = {};  ///< where the pass to come begins
    std::optional<int64_t> now = {}, before = {}, next = {};
  };
  WeightGatherer(const RankGroups& groups, const WeightSet& weights, WeightSet* memory,
                 const PipelineGroups* pipe);
  bool read_again(int64_t part) const;
  std::vector<int64_t> route_of(const Work& work) const;
  /// By strand.
  std::vector<Pass> passes_of(const ScheduleEntry& entry) const;
  void enter(Pass& pass, int64_t part);
  void follow(Pass& pass, int64_t part) const;
  void wander(Pass& pass, int64_t part) const;
  static bool wants(const Pass& pass, int64_t part);
  int64_t bytes_of(const Pass& pass) const;
  void bring(size_t unit);
  void finish(size_t unit);
  void release(size_t unit);

  const RankGroups& groups_;
  const WeightSet& weights_;
  WeightSet* memory_;  ///< nullptr: on paper
  const PipelineGroups* pipe_;
  std::map<int64_t, std::vector<size_t>> units_;  ///< by part, those that hold something
  std::vector<State> states_;
  std::vector<Pending> coming_;
  std::vector<Pass> passes_;
  std::vector<int64_t> gathers_;
  int64_t prefetched_ = 0, bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace ingot
