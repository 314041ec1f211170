// Sums gradients over the ranks that hold parts of them, unit by unit (nn/flat_layout.h), while backward still runs.
//
// A unit travels as soon as the last contribution to the last of its parameters has run, of all micro-batches or, where
// gradients are shared out (ShardLevel::full), of each tape. What nobody contributed to travels at the end, and so does what other
// ranks sum first: tensor ranks (some of it only one of them contributes to), and the stages of a pipeline that hold copies (which
// sum shares at the end, where gradients are shared out). Tapes of data ranks are alike, so units begin in the same order
// everywhere. The sums' bits do not depend on when they begin.
#pragma once
#include <map>
#include <vector>

#include "parallel/pipeline_groups.h"
#include "parallel/pipeline_schedule.h"

namespace ingot {

class GradientReducer final : public TableFollower {
 public:
  /// Listens to `gradients` from now on. All must outlive this. `pipe`: where there are several stages or chunks.
  GradientReducer(const RankGroups& groups, const ParameterTable& table, GradientBuffer& gradients,
                  const PipelineGroups* pipe = nullptr);
  ~GradientReducer() override;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Before the first micro-batch; the tapes of each (one a chunk) will report the parameters that they use.
  void begin_step(int64_t micro_batches);
  /// After each micro-batch, where gradients are shared out and no table is followed.
  void end_micro_batch();
  void begins(std::span<const ScheduleEntry> entries) override;
  void ended(const ScheduleEntry& entry) override;
  /// After the last: waits. Every rank, or each in its share, then has the sums over all tokens of the batch.
  void finish();

  /// Units that began to travel before their micro-batches had ended, in this step so far.
  int64_t overlapped() const { return overlapped_; }

 private:
  /// A unit on its way: all of it, and this rank's share.
  struct Travel {
    int unit;
    Tensor own;
    Pending sum;
  };
  /// What one tape, or all of a step, will report.
  struct Awaited {
    std::vector<int64_t> reports;  ///< by unit: of its parameters, those to come
    std::vector<bool> started;     ///< by unit, or nothing of it is used
  };
  /// Whether tapes that use a parameter report it.
  bool reports(int parameter) const {
    return table_[parameter].trainable &&
           gradients_.layout().shapes[static_cast<size_t>(parameter)].numel() > 0;
  }
  size_t bucket_of(int parameter) const {
    return static_cast<size_t>(gradients_.layout().bucket_of[static_cast<size_t>(parameter)]);
  }
  Awaited nothing_yet(bool started) const;
  Awaited of_step(int64_t micro_batches) const;
  Awaited of_tape(int chunk) const;
  bool waits_for_the_end(const FlatBucket& unit) const;
  void start_rest();
  void finished(int parameter);
  void sum_over_tensor_ranks(const FlatBucket& unit, const Tensor& flat) const;
  void start(int unit);
  void land(Travel& travel);
  void land_all();
  bool each_tape() const { return groups_.placement().sharing.level == ShardLevel::full; }

  const RankGroups& groups_;
  const ParameterTable& table_;
  GradientBuffer& gradients_;
  const PipelineGroups* pipe_;
  Awaited step_;
  std::map<std::pair<int, int>, Awaited>
      tapes_;              ///< by micro-batch and chunk, those whose backward has begun
  Awaited* now_ = &step_;  ///< who reports
  std::vector<Travel> travelling_;
  bool listening_ = false;  ///< to tapes of a step
  int64_t overlapped_ = 0;
};

/// All of it at once, after the last micro-batch.
void reduce_gradients(const RankGroups& groups, const ParameterTable& table, GradientBuffer& gradients);

}  // namespace ingot
