// What a micro-batch adds to the statistics of its step, once the host has the values of its tape.
#pragma once
#include <memory>
#include <string>

#include "train/micro_step.h"

namespace ingot {

/// Which values of a micro-batch the host reads: the statistics of a head, or a metric of the tape.
struct MicroRead {
  int64_t depth = -1;  ///< of the head: 0 for the next token; -1: a metric
  std::string metric = {};
  int64_t layer = 0;
};

/// Outlives tape and micro-step; the model, the statistics and the running counts must outlive it.
struct MicroStats {
  std::shared_ptr<const MicroBatch> batch;
  std::shared_ptr<const Objective> objective;
  double z_coefficient = 0;
  const Model* model = nullptr;
  StepStats* stats = nullptr;  ///< nullptr: nothing is counted
  RunningCounts* running = nullptr;
  int64_t router_rows = 0;       ///< that this rank's routers see
  int64_t first_router_row = 0;  ///< in the micro-batch

  /// One head predicted these targets: its objective, as evaluated. `head`: the statistics to add to;
  /// nullptr: none. Tensors: logprob, lse and entropy [T]; the last may be undefined.
  ObjectiveResult add_head(const Tensor& targets, const ColumnSpans& columns, HeadStats* head,
                           std::span<const Tensor> values) const;
  /// The values of a read: those of a head whose objective is evaluated at the end of the step, or a metric.
  void add(const MicroRead& read, std::span<const Tensor> values) const;
  /// A metric of the tape.
  void add_metric(const std::string& name, int64_t layer, const Tensor& value) const;

 private:
  void count_columns(std::span<const float> logprob, const ObjectiveResult& result) const;
  void count_by_source(int64_t layer, const Tensor& ids_TK) const;
};

}  // namespace ingot
