// Environments as tasks: problems at a fixed seed become the rows of a task whose answers the environment
// judges. `ingot eval MODEL --tasks sort@3-8`, or [environment] in a task's file, which sets what the short
// form leaves as usual.
#pragma once
#include <string>
#include <vector>

#include "base/file_system.h"
#include "eval/task.h"

namespace ingot {

/// The rows of [environment] as JSON lines: {"id", "prompt", "messages", "answer" (the teacher's, where
/// there is one)}. Error: an unknown environment, a difficulty outside its range.
std::string environment_rows(const EnvironmentTask& environment);

/// NAME@LEAST-MOST, NAME@DIFFICULTY: a task of 200 held-out problems, `samples` answers each at temperature
/// 1. Behind it +text asks in plain text instead of a conversation; +switch ends each prompt with /think or
/// /no_think at random and measures whether the reply follows (think_follow). Error: what names no
/// environment, difficulties that it does not have, or a switch with several samples.
bool names_environment_task(const std::string& name);
Task environment_task(const std::string& name, int64_t limit, int64_t samples = 1);

/// The reward of an answer to a row of environment_rows(), and the form in which equal answers are counted.
/// Error where the verifier fails: it says nothing about the model.
struct JudgedAnswer {
  double reward = 0;
  std::string answer;
};
JudgedAnswer judge_row(const TaskJson& row, const std::string& content, const std::string& where);

/// The task that a person names: an environment's, with so many samples, a path, or a file in one of
/// `folders` (task_path()).
Task open_task(FileSystem& fs, const std::string& name, const std::vector<std::string>& folders,
               const std::string& data_folder, int64_t limit, int64_t samples = 1);

}  // namespace ingot
