// See run_tasks.h.
#include "train/run_tasks.h"

#include <algorithm>
#include <map>

#include "eval/environment_task.h"
#include "eval/run_task.h"

namespace ingot {
namespace {

/// Whether the model can do tasks while it trains.
void require_whole_model(const TrainEngine& engine) {
  if (engine.ranks().groups().tensor().size() * engine.pipeline().stages() > 1)
    throw Error(
        "evaluation.tasks need a whole model on a rank, and this run divides it over tensor or pipeline "
        "ranks",
        "leave evaluation.tasks empty and run `ingot eval` on the checkpoints");
  if (engine.recipe().model.moe.sees_future_tokens())
    throw Error("evaluation.tasks: moe.selection = expert_choice cannot decode token by token",
                "leave evaluation.tasks empty");
}

std::string metric_name(const Task& task, const MetricValue& v) {
  const bool one_filter = task.config().filters.size() <= 1;
  return v.metric + (one_filter ? "" : "," + v.filter);
}

}  // namespace

TaskGate TaskGate::parse(const std::string& text) {
  TaskGate gate;
  const size_t sign = text.find_first_of("<>");
  const auto trimmed = [](const std::string& s) {
    const size_t begin = s.find_first_not_of(' ');
    return begin == std::string::npos ? "" : s.substr(begin, s.find_last_not_of(' ') - begin + 1);
  };
  const std::string what = trimmed(text.substr(0, sign));
  const size_t dot = what.rfind('.');
  if (sign == std::string::npos || text.compare(sign + 1, 1, "=") != 0 || dot == std::string::npos ||
      dot == 0 || dot + 1 == what.size())
    throw Error(fmt::format("'{}' is no gate", text),
                "write task.metric >= value (or <=), such as \"arithmetic.exact >= 0.8\"");
  gate.task = what.substr(0, dot);
  gate.metric = what.substr(dot + 1);
  gate.at_least = text[sign] == '>';
  gate.bound = parse_number(trimmed(text.substr(sign + 2)), between(-1e38, 1e38), "gate " + what);
  return gate;
}

RunTasks::RunTasks(FileSystem& fs, const TrainEngine& engine)
    : every_(engine.recipe().evaluation.tasks_every) {
  const EvaluationConfig& e = engine.recipe().evaluation;
  const auto folders =
      e.tasks_folder.empty() ? default_task_folders() : std::vector<std::string>{e.tasks_folder};
  std::map<std::string, std::string> names;  // of tasks by what the recipe calls them
  const auto load = [&](const std::string& given) {
    if (names.contains(given)) return;
    tasks_.push_back(open_task(fs, given, folders, {}, e.tasks_limit));
    names[given] = tasks_.back().name();
    for (size_t i = 0; i + 1 < tasks_.size(); ++i)
      if (tasks_[i].name() == tasks_.back().name())
        fail("evaluation.tasks names '{}' twice", tasks_.back().name());
  };
  for (const std::string& given : e.tasks) {
    if (names.contains(given)) fail("evaluation.tasks names '{}' twice", given);
    load(given);
  }
  for (const PhaseConfig& p : engine.recipe().phases) {
    std::vector<std::string>& of_phase = of_phase_.emplace_back();
    std::string& gate = gate_tasks_.emplace_back();
    for (const std::string& given : p.tasks.empty() ? e.tasks : p.tasks) {
      load(given);
      of_phase.push_back(names.at(given));
    }
    if (p.gate.empty()) continue;
    const std::string asked = TaskGate::parse(p.gate).task;
    const bool known =
        std::any_of(tasks_.begin(), tasks_.end(), [&](const Task& t) { return t.name() == asked; });
    if (!known) load(asked);
    gate = known ? asked : names.at(asked);
  }
  if (tasks_.empty()) return;
  require_whole_model(engine);
  const auto chats = [](const Task& t) { return t.config().chat.enabled; };
  const auto asks = std::find_if(tasks_.begin(), tasks_.end(), chats);
  if (asks == tasks_.end()) return;
  chat_ = find_chat_template(fs, engine.recipe());
  if (!chat_)
    throw Error(fmt::format("evaluation.tasks: '{}' asks in a chat format, which this run does not have",
                            asks->name()),
                "name one with data.chat_template, or run `ingot eval` on its checkpoints with that task");
}

const Task& RunTasks::named(const std::string& name) const {
  const auto found =
      std::find_if(tasks_.begin(), tasks_.end(), [&](const Task& t) { return t.name() == name; });
  INGOT_CHECK(found != tasks_.end(), "task '{}' was not read", name);
  return *found;
}

EngineModel RunTasks::model(TrainEngine& engine, const PreparedData& data) const {
  EngineModelOptions options{.chat = chat_};
  options.control.begin = document_tokens(engine.recipe().data, data.tokenizer).begin;
  if (const auto eos = data.tokenizer.roles().eos) options.control.end = {*eos};
  return EngineModel(engine.model(), data.tokenizer, std::move(options));
}

bool RunTasks::due(size_t phase, int64_t step, bool saves, bool last) const {
  return !of_phase_[phase].empty() && (last || (every_ > 0 ? step % every_ == 0 : saves));
}

std::optional<std::string> RunTasks::run(TrainEngine& engine, const PreparedData& data, size_t phase,
                                         MetricRow& row, const std::function<bool()>& stops) const {
  std::string line;
  EngineModel answers = model(engine, data);
  for (const std::string& name : of_phase_[phase]) {
    if (stops()) return std::nullopt;
    const Task& task = named(name);
    const TaskResult result = run_task(task, answers);
    for (const MetricValue& v : result.values) {
      const std::string metric = fmt::format("task/{}/{}", task.name(), metric_name(task, v));
      row.set(metric, v.value);
      if (v.error) row.set(metric + "_stderr", *v.error);
    }
    const MetricValue& first = result.values.front();
    line += fmt::format("{}{} {} {:.4f}", line.empty() ? "" : ", ", task.name(), first.metric, first.value);
  }
  return line;
}

std::string RunTasks::require_gate(TrainEngine& engine, const PreparedData& data, size_t phase) const {
  const PhaseConfig& p = engine.recipe().phases[phase];
  if (p.gate.empty()) return {};
  const TaskGate gate = TaskGate::parse(p.gate);
  const Task& task = named(gate_tasks_[phase]);
  EngineModel answers = model(engine, data);
  const TaskResult result = run_task(task, answers);
  std::string names;
  for (const MetricValue& v : result.values) {
    const std::string metric = metric_name(task, v);
    names += (names.empty() ? "" : ", ") + metric;
    if (metric != gate.metric) continue;
    const std::string measured = fmt::format("{}.{} is {:.4f}{}", gate.task, gate.metric, v.value,
                                             v.error ? fmt::format(" +- {:.4f}", *v.error) : "");
    if (gate.holds(v.value)) return measured;
    throw Error(
        fmt::format("phase '{}' does not begin: it asks for {}, and {}", p.name, p.gate, measured),
        fmt::format("train the phase before it for longer, or lower phases.{}.gate; the run stands at its "
                    "end and resumes from there",
                    phase));
  }
  throw Error(
      fmt::format("the gate of phase '{}': task '{}' has no metric '{}'", p.name, gate.task, gate.metric),
      "it has " + names);
}

}  // namespace ingot
