// `ingot eval --tasks`, and the tools beside it: see eval_tasks.cpp.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "infer/packed_model.h"

namespace ingot {

struct TaskArguments {
  std::string tasks;                 ///< "a,b"; empty: no tasks
  std::string folder, data, output;  ///< of task files, of rows, of results
  std::string harness;               ///< folder for the harness's configurations
  int64_t limit = 0;
  bool list = false;
};

/// Runs the tasks on a packed model and prints the table; writes result files where asked.
void eval_tasks(const TaskArguments& o, const StoredModel& stored, const PackedModel& packed,
                const std::string& tokenizer, bool no_begin, const JsonOption& json);
/// --export-harness and --list-tasks, which need no model.
void export_tasks(const TaskArguments& o);
void list_tasks(const TaskArguments& o);

}  // namespace ingot
