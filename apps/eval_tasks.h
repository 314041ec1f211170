// `ingot eval --tasks`, and the tools beside it: see eval_tasks.cpp.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "chat/chat_template.h"
#include "infer/packed_model.h"
#include "reason/markovian_rsa.h"

namespace ingot {

struct TaskArguments {
  std::string tasks;                        ///< "a,b"; empty: no tasks
  std::string folder, data, output;         ///< of task files, of rows, of results
  std::string harness;                      ///< folder for the harness's configurations
  std::string chat_template;                ///< of tasks that are conversations; empty: the model's
  std::string method, compaction = "tail";  ///< of test-time compute; empty: each answer stands alone
  reason::RsaOptions rsa;
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
