// `ingot eval quality` and `ingot eval compare`: what runs and tables of scores say of tasks, and of a run.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/text_io.h"
#include "base/log.h"
#include "eval/quality.h"
#include "eval/task.h"
#include "eval/trajectory.h"
#include "report/run_record.h"
#include "report/table.h"
#include "train/recipe.h"

namespace ingot {
namespace {

bool is_run(const std::string& path) {
  return real_file_system().exists(path + "/" + run_files::kMetrics);
}

/// Everything of a run's configuration that is no name of a place and no seed: runs that agree are one arm.
std::string arm_of(Recipe recipe) {
  recipe.run.folder.clear();
  recipe.run.seed = 0;
  return print_config(recipe);
}

/// Chance of a task of the run; 0 where its file is not found.
double chance_of(const Recipe& recipe, const std::string& name) {
  const EvaluationConfig& e = recipe.evaluation;
  const auto folders =
      e.tasks_folder.empty() ? default_task_folders() : std::vector<std::string>{e.tasks_folder};
  for (const std::string& given : e.tasks) {
    try {
      const Task task = Task::load(real_file_system(), task_path(real_file_system(), given, folders));
      if (task.name() == name) return task.chance();
    } catch (const Error& error) {
      log::warn("the chance of '{}' is taken as 0: {}", given, error.what());
    }
  }
  return 0;
}

std::vector<ScoreRow> rows_of_runs(const std::vector<std::string>& runs) {
  std::map<std::string, std::string> arms;
  std::vector<ScoreRow> rows;
  for (const std::string& run : runs) {
    if (!is_run(run))
      throw Error(fmt::format("'{}' is no run", run), "name runs, or one table of scores (.csv)");
    const Recipe recipe = load_recipe(run + "/" + run_files::kConfig, {});
    const std::string& arm = arms.try_emplace(arm_of(recipe), run).first->second;
    std::map<std::string, double> chances;
    for (const MetricRow& m : read_metrics(real_file_system(), run + "/" + run_files::kMetrics))
      for (const auto& [name, value] : m.scalars) {
        if (!name.starts_with("task/") || name.ends_with("_stderr") || name.ends_with("seed_noise")) continue;
        const std::string score = name.substr(5), task = score.substr(0, score.find('/'));
        const bool higher = higher_is_better(score.substr(score.rfind('/') + 1));
        if (!chances.contains(task)) chances[task] = chance_of(recipe, task);
        rows.push_back(
            {score, arm, recipe.run.seed, m.step, higher ? value : -value, higher ? chances[task] : 0});
      }
  }
  if (rows.empty())
    throw Error("the runs have no scores of tasks",
                "set evaluation.tasks in their recipes (docs/evaluate.md)");
  return rows;
}

Cell cell(const std::optional<double>& value) {
  return value ? Cell(*value) : Cell(std::monostate());
}

void quality(const std::vector<std::string>& of, const JsonOption& json) {
  const std::vector<ScoreRow> rows = of.size() == 1 && !is_run(of[0])
                                         ? read_score_table(real_file_system().read(of[0]), of[0])
                                         : rows_of_runs(of);
  const auto column = [](const char* title, const char* field) {
    return Column{.title = title, .format = "{:.3f}", .field = field};
  };
  const auto count = [](const char* title) { return Column{.title = title, .field = title}; };
  Table table({words("task", "task"), count("arms"), count("seeds"), count("steps"),
               column("monotonicity", "monotonicity"), column("seed noise", "seed_noise"),
               column("signal / noise", "signal"), column("ranking", "ranking"),
               words("verdict", "verdict")});
  for (const TaskQuality& q : judge_tasks(rows)) {
    std::string verdict = q.decides() ? "decides" : "does not decide: ";
    for (size_t i = 0; i < q.faults.size(); ++i) verdict += (i > 0 ? ", " : "") + q.faults[i];
    table.add({q.task, q.arms, q.seeds, q.steps, cell(q.monotonicity), cell(q.seed_noise), cell(q.signal),
               cell(q.ranking), verdict});
  }
  json.print(table.text(), table.json().dump(2));
}

int compare(const std::string& run, const std::string& reference, const JsonOption& json) {
  if (!is_run(run)) throw Error(fmt::format("'{}' is no run", run), "name a run's folder");
  FileSystem& fs = real_file_system();
  const auto theirs = is_run(reference) ? curves_of(read_metrics(fs, reference + "/" + run_files::kMetrics))
                                        : read_reference(fs.read(reference), reference);
  const auto all = compare_curves(curves_of(read_metrics(fs, run + "/" + run_files::kMetrics)), theirs);
  if (all.empty())
    throw Error("the two have no score in common at equal tokens",
                "names are as in the run's metrics: spelling/acc, val/SOURCE/loss");
  Table table({words("score", "score"), Column{.title = "points", .field = "points"},
               Column{.title = "tokens", .format = "{:.0f}", .field = "tokens"},
               Column{.title = "run", .format = "{:.4f}", .field = "run"},
               Column{.title = "reference", .format = "{:.4f}", .field = "reference"},
               Column{.title = "ahead", .format = "{:+.4f}", .field = "ahead"}, words("", "verdict")});
  bool behind = false;
  for (const Comparison& c : all) {
    table.add(
        {c.name, c.points, c.tokens, c.value, c.reference, c.ahead, std::string(c.behind ? "BEHIND" : "")});
    behind = behind || c.behind;
  }
  json.print(table.text(), table.json().dump(2));
  return behind ? 1 : 0;
}

}  // namespace

void add_eval_tools(CLI::App& eval, int& code) {
  auto of = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<JsonOption>();
  CLI::App* q =
      eval.add_subcommand("quality", "whether tasks are fit to decide: monotonicity, noise, signal, ranking");
  q->add_option("scores", *of, "runs, or one table: task,arm,seed,step,score,chance")->required();
  add_json_option(*q, *json);
  q->callback([of, json] { quality(*of, *json); });

  struct Two {
    std::string run, reference;
    JsonOption json;
  };
  auto two = std::make_shared<Two>();
  CLI::App* c = eval.add_subcommand(
      "compare", "a run's scores beside a reference's at equal tokens; exit code 1: behind");
  c->add_option("run", two->run, "run folder")->required();
  c->add_option("reference", two->reference, "run folder, or a table: score,tokens,value")->required();
  add_json_option(*c, two->json);
  c->callback([two, &code] { code = compare(two->run, two->reference, two->json); });
}

}  // namespace ingot
