// `ingot eval MODEL --tasks a,b`: tasks on a model, the table of lm-evaluation-harness, its result files.
#include "apps/eval_tasks.h"

#include <iostream>

#include "apps/command_line.h"
#include "apps/text_io.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "eval/engine_model.h"
#include "eval/environment_task.h"
#include "eval/results.h"
#include "eval/run_task.h"
#include "exchange/chat_format.h"
#include "nn/parameter.h"
#include "report/table.h"

namespace ingot {
namespace {

std::vector<std::string> task_folders(const TaskArguments& o) {
  return o.folder.empty() ? default_task_folders() : std::vector<std::string>{o.folder};
}

std::vector<Task> load_tasks(const TaskArguments& o) {
  std::vector<Task> tasks;
  for (const std::string& name : task_names(o.tasks)) {
    tasks.push_back(open_task(real_file_system(), name, task_folders(o), o.data, o.limit,
                              o.method.empty() ? 1 : o.rsa.population));
    for (size_t i = 0; i + 1 < tasks.size(); ++i)
      if (tasks[i].name() == tasks.back().name())
        fail("two of the tasks have the name '{}': results are kept by name", tasks.back().name());
  }
  return tasks;
}

EvaluatedModel about(const StoredModel& stored, const PackedModel& packed, const Tokenizer& tokenizer,
                     const ControlTokens& control) {
  EvaluatedModel m{.path = stored.reader.path(), .context = packed.model().config().context};
  m.parameters = count_parameters(packed.model().decoder()).total;
  m.dtype = std::string(name_of(packed.model().weights().precision().compute));
  m.begin_id = control.begin;
  if (!control.end.empty()) m.end_id = control.end.front();
  if (m.begin_id) m.begin_text = ControlTokens::text(tokenizer, {&*m.begin_id, 1});
  if (m.end_id) m.end_text = ControlTokens::text(tokenizer, {&*m.end_id, 1});
  return m;
}

/// majority: RSA without rounds, whose answers are plain samples.
std::optional<reason::RsaOptions> method_of(const TaskArguments& o) {
  if (o.method.empty()) return {};
  if (o.method != "majority" && o.method != "rsa")
    throw UsageError(fmt::format("--method is '{}'", o.method), "expected majority or rsa");
  reason::RsaOptions rsa = o.rsa;
  if (o.method == "majority") rsa.rounds = 0, rsa.candidates = 1, rsa.tail = 1;
  rsa.compaction = enum_from<reason::Compaction>(o.compaction, "--compaction");
  reason::validate(rsa);
  return rsa;
}

}  // namespace

void eval_tasks(const TaskArguments& o, const StoredModel& stored, const PackedModel& packed,
                const std::string& tokenizer_path, bool no_begin, const JsonOption& json) {
  const std::vector<Task> tasks = load_tasks(o);  // their faults are found before the model works
  const Tokenizer tokenizer = load_tokenizer(stored, tokenizer_path);
  ControlTokens control = control_tokens(real_file_system(), stored, tokenizer);
  if (no_begin) control.begin.reset();
  EvaluatedModel described = about(stored, packed, tokenizer, control);
  std::optional<chat::ChatTemplate> chat = chat_template_of(real_file_system(), stored, o.chat_template);
  if (chat) described.chat_template = chat->source();
  EngineModel model(packed.model(), tokenizer,
                    {.control = control, .chat = std::move(chat), .rsa = method_of(o)});
  const double begin = monotonic_seconds(), started = wall_seconds();
  std::vector<TaskEvaluation> done;
  for (const Task& task : tasks) {
    done.push_back({&task, run_task(task, model, [&](int64_t row, int64_t rows) {
                      log::set_status(fmt::format("{}: {} of {} rows", task.name(), row, rows));
                    })});
    log::set_status("");
  }
  const double seconds = monotonic_seconds() - begin;
  json.print(results_table(done) + results_notes(done),
             json_text(results_json(described, done, started, seconds), 2));
  if (!o.output.empty())
    log::info("wrote {}", write_results(real_file_system(), o.output, described, done, started, seconds));
}

void export_tasks(const TaskArguments& o) {
  FileSystem& fs = real_file_system();
  fs.create_folders(o.harness);
  for (const Task& task : load_tasks(o))
    write_file_atomically(fs, fmt::format("{}/{}.yaml", o.harness, task.name()),
                          python_json(harness_config(task, true), 2) + "\n");
}

void list_tasks(const TaskArguments& o) {
  FileSystem& fs = real_file_system();
  Table table({words("task"), words("kind"), number("rows", 0), words("metrics")});
  for (const std::string& folder : task_folders(o)) {
    if (!fs.exists(folder)) continue;
    for (const std::string& file : fs.list(folder)) {
      if (!file.ends_with(".toml")) continue;
      const std::string name = file.substr(0, file.size() - 5);
      try {
        const Task task = Task::load(fs, folder + "/" + file, o.data);
        std::string metrics;
        for (const std::string& m : task.config().metrics) metrics += (metrics.empty() ? "" : ", ") + m;
        table.add({name, std::string(name_of(task.config().kind)), static_cast<int64_t>(task.rows().size()),
                   metrics});
      } catch (const Error& e) {
        table.add({name, std::string(), std::monostate(), std::string(e.what())});
      }
    }
  }
  print_text(table.text());
}

}  // namespace ingot
