// Results of tasks as lm-evaluation-harness 0.4.13 writes, reads and prints them: results_DATE.json,
// samples_TASK_DATE.jsonl, and the table. What only this program knows stands under the key "ingot".
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "eval/task_result.h"

namespace ingot {

/// What the results say of the model.
struct EvaluatedModel {
  std::string path;  ///< "model_name"
  int64_t parameters = 0, context = 0;
  std::string dtype, begin_text, end_text;
  std::optional<int32_t> begin_id, end_id;
  std::string chat_template;  ///< source; "" if none
};

struct TaskEvaluation {
  const Task* task = nullptr;
  TaskResult result;
};

/// The configuration of the harness's task that asks and scores the same: a YAML file (JSON is YAML) for
/// --include_path. Error where the harness has no such thing, naming it; `require_equal` false: leaves it
/// out.
TaskJson harness_config(const Task& task, bool require_equal);

/// The table that the harness prints.
std::string results_table(const std::vector<TaskEvaluation>& evaluations);
/// Lines below it: how long answers were, prompts that were cut.
std::string results_notes(const std::vector<TaskEvaluation>& evaluations);

/// The content of results_*.json.
TaskJson results_json(const EvaluatedModel& model, const std::vector<TaskEvaluation>& evaluations,
                      double started, double seconds);
/// Writes FOLDER/MODEL/results_DATE.json and a file of samples a task; returns the first's path. `started`:
/// seconds since 1970.
std::string write_results(FileSystem& fs, const std::string& folder, const EvaluatedModel& model,
                          const std::vector<TaskEvaluation>& evaluations, double started, double seconds);

}  // namespace ingot
