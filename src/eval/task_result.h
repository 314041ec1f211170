// What a task has scored: values with their errors, and one record a row and filter as the harness writes it.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eval/task.h"

namespace ingot {

struct MetricValue {
  std::string metric, filter = "none";
  double value = 0;
  std::optional<double> error;  ///< standard error of the mean over rows
};

/// Tokens of answers, by quantile.
struct AnswerLengths {
  int64_t answers = 0, cut = 0, tokens = 0;
  int64_t median = 0, ninety = 0, longest = 0;
};

struct TaskResult {
  std::vector<MetricValue> values;
  std::vector<TaskJson> samples;  ///< lines of samples_NAME_*.jsonl
  int64_t rows = 0;
  int64_t cut_prompts = 0;  ///< prompts that the context did not hold, cut on the left
  std::optional<AnswerLengths> lengths;
  /// The value of "acc" or "acc,none"; nullptr where there is none.
  const MetricValue* find(const std::string& metric) const;
};

}  // namespace ingot
