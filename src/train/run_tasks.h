// Tasks during a run (evaluation.tasks): scores of the trainer's own weights, the same bits that `ingot eval`
// computes for the checkpoint of that step. Beside the model they need memory for the engine's pages, given
// back afterwards.
#pragma once
#include <memory>
#include <vector>

#include "eval/task.h"
#include "report/metrics.h"
#include "train/engine.h"
#include "train/prepare.h"

namespace ingot {

class RunTasks {
 public:
  /// Reads the task files. Error for one that is missing or wrong, and where ranks hold parts of the model
  /// (tensor or pipeline ranks).
  RunTasks(FileSystem& fs, const TrainEngine& engine);
  bool empty() const { return tasks_.empty(); }
  /// Whether they are due after `step`. `saves`: a checkpoint is due there.
  bool due(int64_t step, bool saves, bool last) const;
  /// Called by all ranks, which compute the same. Adds task/<name>/<metric> to the row; returns a line for
  /// the log.
  std::string run(TrainEngine& engine, const PreparedData& data, MetricRow& row) const;

 private:
  std::vector<Task> tasks_;
  int64_t every_ = 0;
};

}  // namespace ingot
