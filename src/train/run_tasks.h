// Tasks during a run (evaluation.tasks): scores of the trainer's own weights, the same bits that `ingot eval`
// computes for the checkpoint of that step. Beside the model they need memory for the engine's pages, given
// back afterwards.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "eval/engine_model.h"
#include "eval/task.h"
#include "report/metrics.h"
#include "train/engine.h"
#include "train/prepare.h"

namespace ingot {

/// What a phase asks of a task before it begins (PhaseConfig::gate): "task.metric >= 0.8".
struct TaskGate {
  std::string task, metric;
  bool at_least = true;
  double bound = 0;
  /// Error where the text is no such condition.
  static TaskGate parse(const std::string& text);
  bool holds(double value) const { return at_least ? value >= bound : value <= bound; }
};

class RunTasks {
 public:
  /// Reads the task files of all phases. Error for one that is missing or wrong, and where ranks hold parts
  /// of the model (tensor or pipeline ranks). Tasks in a chat format take the recipe's template.
  RunTasks(FileSystem& fs, const TrainEngine& engine);
  bool empty() const { return tasks_.empty(); }
  /// Whether those of a phase are due after `step`. `saves`: a checkpoint is due there.
  bool due(size_t phase, int64_t step, bool saves, bool last) const;
  /// Called by all ranks, which compute the same. Adds task/<name>/<metric> of the phase's tasks to the row;
  /// returns a line for the log, or nothing where `stops`, asked before each task, says so on all ranks.
  std::optional<std::string> run(TrainEngine& engine, const PreparedData& data, size_t phase, MetricRow& row,
                                 const std::function<bool()>& stops) const;
  /// The gate of a phase, where it has one: returns what was measured, in words. Error where it does not
  /// hold.
  std::string require_gate(TrainEngine& engine, const PreparedData& data, size_t phase) const;

 private:
  const Task& named(const std::string& name) const;
  EngineModel model(TrainEngine& engine, const PreparedData& data) const;
  std::vector<Task> tasks_;
  std::vector<std::vector<std::string>> of_phase_;  ///< names of the tasks of each phase
  std::vector<std::string> gate_tasks_;             ///< and of the task of its gate
  std::optional<chat::ChatTemplate> chat_;          ///< where some task asks in a chat format
  int64_t every_ = 0;
};

}  // namespace ingot
