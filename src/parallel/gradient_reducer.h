// Sums gradients over the ranks that have partial sums, part by part (reduction_parts.h: a bucket, or a
// part of one), while backward still runs.
//
// The reduction of a part begins as soon as the last contribution to the last of its parameters has run: of
// all micro-batches or, where the sums are staged (GradientBuffer), of each tape. Three kinds of parts are
// reduced at the end: those that nobody contributed to, those that tensor ranks sum first (only one of them
// may contribute to such a parameter), and those that other pipeline stages hold too (under ShardLevel::full
// these stages sum their shards at the end). The tapes of data ranks are alike, so parts begin in the same
// order everywhere. The bits of the sums depend neither on when they begin nor on the parts.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "base/digest.h"
#include "parallel/pipeline_groups.h"
#include "parallel/pipeline_schedule.h"
#include "parallel/reduction_parts.h"

namespace ingot {

class GradientReducer final : public ScheduleObserver {
 public:
  /// Sets gradients.on_finished. All arguments must outlive this. `pipe`: where there are several stages or
  /// chunks.
  GradientReducer(const RankGroups& groups, const ParameterTable& table, GradientBuffer& gradients,
                  const PipelineGroups* pipe = nullptr);
  ~GradientReducer() override;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Before the first micro-batch; the tapes of each (one per chunk) will report the parameters that they
  /// use.
  void begin_step(int64_t micro_batches);
  /// After each micro-batch, unless a pipeline's schedule is observed.
  void end_micro_batch();
  void before_entry(std::span<const ScheduleEntry> entries) override;
  void after_entry(const ScheduleEntry& entry) override;
  /// After the last micro-batch: waits. Every rank then has the sums over all tokens of the batch, or its
  /// shard of them.
  void finish();

  /// In the order in which backward completes them, where they are not whole buckets.
  const std::vector<ReductionPart>& parts() const { return parts_; }
  /// Called when the reduction of a part begins, with its index.
  std::function<void(size_t)> on_start;
  /// Takes this rank's own gradient of the steps that begin from now on, before any sum over ranks (over
  /// tapes that are reduced each by itself: of each); where stages of a pipeline hold a parameter, its sum
  /// over them. nullptr: nobody.
  Digest* own_digest = nullptr;
  /// Whether the ranks' gradients are summed in the steps that begin from now on; else they are digested
  /// alone, and what finish() leaves is of no use.
  bool sums = true;
  /// Parts of this step whose reduction began before their micro-batches had ended.
  int64_t overlapped() const { return overlapped_; }

 private:
  struct PendingReduction {
    int bucket;
    Tensor shard;  ///< what this rank keeps
    Pending sum;
  };
  /// What one tape, or all tapes of a step, have not reported yet.
  struct Expected {
    std::vector<int64_t> reports;  ///< by part: reports of its parameters to come
    std::vector<bool> started;     ///< by part: its reduction has begun, or nothing of it is used
  };
  /// Whether tapes that use a parameter report it.
  bool is_reported(int parameter) const {
    return table_[parameter].trainable &&
           gradients_.layout().shapes[static_cast<size_t>(parameter)].numel() > 0;
  }
  size_t part_of(int parameter) const { return part_of_[static_cast<size_t>(parameter)]; }
  std::vector<bool> reduced_late() const;
  Expected no_reports(bool started) const;
  Expected reports_of_step(int64_t micro_batches) const;
  Expected reports_of_tape(int chunk) const;
  void start_remaining();
  void finished(int parameter);
  void digest_own(const ReductionRange& range, const Tensor& flat) const;
  void sum_over_tensor_ranks(const ReductionRange& range, const Tensor& flat) const;
  void start(size_t part);
  void start(const ReductionRange& range);
  void wait(PendingReduction& reduction);
  void wait_all();
  bool reduces_each_tape() const { return gradients_.uses_staging(); }

  const RankGroups& groups_;
  const ParameterTable& table_;
  GradientBuffer& gradients_;
  const PipelineGroups* pipe_;
  std::vector<ReductionPart> parts_;
  std::vector<size_t> part_of_;  ///< by parameter
  std::vector<bool> at_end_;     ///< by part
  Expected step_;
  /// By micro-batch and chunk: the tapes whose backward has begun.
  std::map<std::pair<int, int>, Expected> tapes_;
  Expected* current_ = &step_;  ///< step_, or the tape that runs
  std::vector<PendingReduction> in_flight_reductions_;
  bool in_step_ = false;  ///< reports of tapes count
  int64_t overlapped_ = 0;
};

}  // namespace ingot
