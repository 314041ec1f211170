// See run_tasks.h.
#include "train/run_tasks.h"

#include "eval/engine_model.h"
#include "eval/run_task.h"

namespace ingot {

RunTasks::RunTasks(FileSystem& fs, const TrainEngine& engine)
    : every_(engine.recipe().evaluation.tasks_every) {
  const EvaluationConfig& e = engine.recipe().evaluation;
  const auto folders =
      e.tasks_folder.empty() ? default_task_folders() : std::vector<std::string>{e.tasks_folder};
  for (const std::string& name : e.tasks) {
    tasks_.push_back(Task::load(fs, task_path(fs, name, folders), {}, e.tasks_limit));
    for (size_t i = 0; i + 1 < tasks_.size(); ++i)
      if (tasks_[i].name() == tasks_.back().name()) fail("evaluation.tasks names '{}' twice", name);
    if (tasks_.back().config().chat.enabled)
      throw Error(
          fmt::format("evaluation.tasks: '{}' asks in a chat format, which a run does not have", name),
          "run `ingot eval` on its checkpoints with that task");
  }
  if (tasks_.empty()) return;
  if (engine.ranks().groups().tensor().size() * engine.pipeline().stages() > 1)
    throw Error(
        "evaluation.tasks need a whole model on a rank, and this run divides it over tensor or pipeline "
        "ranks",
        "leave evaluation.tasks empty and run `ingot eval` on the checkpoints");
  if (engine.recipe().model.moe.sees_future_tokens())
    throw Error("evaluation.tasks: moe.selection = expert_choice cannot decode token by token",
                "leave evaluation.tasks empty");
}

bool RunTasks::due(int64_t step, bool saves, bool last) const {
  return !tasks_.empty() && (last || (every_ > 0 ? step % every_ == 0 : saves));
}

std::string RunTasks::run(TrainEngine& engine, const PreparedData& data, MetricRow& row) const {
  ControlTokens control;
  control.begin = document_tokens(engine.recipe().data, data.tokenizer).begin;
  if (const auto eos = data.tokenizer.roles().eos) control.end = {*eos};
  std::string line;
  EngineModel model(engine.model(), data.tokenizer, {.control = control});
  for (const Task& task : tasks_) {
    const TaskResult result = run_task(task, model);
    const bool one_filter = task.config().filters.size() <= 1;
    for (const MetricValue& v : result.values) {
      const std::string name =
          fmt::format("task/{}/{}{}", task.name(), v.metric, one_filter ? "" : "," + v.filter);
      row.set(name, v.value);
      if (v.error) row.set(name + "_stderr", *v.error);
    }
    const MetricValue& first = result.values.front();
    line += fmt::format("{}{} {} {:.4f}", line.empty() ? "" : ", ", task.name(), first.metric, first.value);
  }
  return line;
}

}  // namespace ingot
