// A file of rows as an environment: questions with their answers, one JSON object a line, of one difficulty.
//   GSM8K  {"question": "...", "answer": "... #### 18"}; the text before #### is the teacher's reasoning
//   verl   {"prompt": [messages] or "...", "reward_model": {"ground_truth": "18"}}
//   TRL    {"prompt": [messages] or "...", "answer" (or "solution", "ground_truth"): "18"}
//   own    {"prompt": [messages] or "...", "id": "sort/1/17@5"}: another question about a problem of an
//          environment, which judges the answer (`ingot reason --rows`, `ingot environment export`)
// Answers are compared as exact numbers where the row's is one (number_of), else as words in any case. Rows
// are not divided into training and held-out ones: that is what two files are for. Seeds from kHeldOutSeeds
// on take the rows in their order; smaller ones in an order of their own, each row once an epoch.
#pragma once
#include <string>

#include "base/file_system.h"
#include "environments/environment.h"

namespace ingot::environments {

/// `name` is the environment's: its path. Errors name the line and the field: invalid JSON, a row of another
/// form, an answer that is empty; a file without rows.
EnvironmentPointer row_environment(FileSystem& fs, const std::string& path);

}  // namespace ingot::environments
