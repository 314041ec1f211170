// Runs a task on a model: asks, filters, compares, averages. The result is a function of task, weights and
// seed.
#pragma once
#include <functional>

#include "eval/task_model.h"
#include "eval/task_result.h"

namespace ingot {

/// Called now and then with how many rows of how many have been asked.
using TaskProgress = std::function<void(int64_t done, int64_t rows)>;

/// Errors name the row's file, its number and the field.
TaskResult run_task(const Task& task, TaskModel& model, const TaskProgress& progress = {});

/// Whether an answer equals the target, as the task compares them (ignore, ignore_case, ignore_punctuation).
class AnswerComparison {
 public:
  explicit AnswerComparison(const TaskConfig& config);
  bool equal(const std::string& answer, const std::string& target) const;

 private:
  std::string reduced(std::string text) const;
  std::vector<Pattern> ignore_;
  bool lower_, punctuation_;
};

}  // namespace ingot
