// `ingot eval quality`, `compare`, `experts` and `prompts`: what runs and tables of scores say of tasks and
// of a run, what weights say of experts, and replies to read.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/eval_tasks.h"
#include "apps/model_argument.h"
#include "apps/text_io.h"
#include "base/log.h"
#include "base/terminal_text.h"
#include "eval/engine_model.h"
#include "eval/environment_task.h"
#include "eval/expert_overlap.h"
#include "eval/prompt_pack.h"
#include "eval/quality.h"
#include "eval/task.h"
#include "eval/trajectory.h"
#include "exchange/chat_format.h"
#include "exchange/stored_model.h"
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
      const Task task = open_task(real_file_system(), given, folders, {}, 0);
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

void experts(const std::string& path, int64_t directions, const JsonOption& json) {
  const StoredModel stored = open_stored_model(real_file_system(), path);
  const auto count = [](const char* title) { return Column{.title = title, .field = title}; };
  const auto column = [](const char* title, const char* field) {
    return Column{.title = title, .format = "{:.4f}", .field = field};
  };
  Table table({count("layer"), count("experts"), count("directions"),
               column("input overlap", "input_overlap"), column("+-", "input_deviation"),
               column("rho", "input_rho"), column("variance", "input_variance"),
               column("output overlap", "output_overlap"), column("+-", "output_deviation"),
               column("rho", "output_rho"), column("variance", "output_variance")});
  for (const ExpertOverlap& o : expert_overlap(stored.reader, directions))
    table.add({o.layer, o.experts, o.directions, o.input.mean, o.input.deviation, o.input.rho,
               o.input.variance, o.output.mean, o.output.deviation, o.output.rho, o.output.variance});
  json.print(table.text(), table.json().dump(2));
}

void add_experts_command(CLI::App& eval) {
  struct Arguments {
    ModelArgument model;
    int64_t directions = 0;
    JsonOption json;
  };
  auto o = std::make_shared<Arguments>();
  CLI::App* c = eval.add_subcommand(
      "experts",
      "how much the experts of each layer do the same: overlap of their leading singular directions");
  add_model_argument(*c, o->model);
  c->add_option("--directions", o->directions, "of each expert; default: a sixteenth of the width")
      ->check(in(between(1, 0x1p20)));
  add_json_option(*c, o->json);
  c->callback([o] { experts(o->model.path(), o->directions, o->json); });
}

struct PackArguments {
  ModelArgument model;
  std::string prompts = "first_words", weights, tokenizer;
  TaskSampling sampling;
  JsonOption json;
};

/// A path (it ends in .jsonl or has a slash), or the name of a file in `prompts` of a folder of tasks.
std::string pack_path(const std::string& given) {
  if (given.ends_with(".jsonl") || given.find('/') != std::string::npos) return given;
  std::string looked;
  for (const std::string& folder : default_task_folders()) {
    const std::string path = folder + "/prompts/" + given + ".jsonl";
    if (real_file_system().exists(path)) return path;
    looked += (looked.empty() ? "" : ", ") + path;
  }
  throw Error(fmt::format("there are no saved prompts '{}'", given),
              fmt::format("looked for: {}; or give the path of a file", looked));
}

void play_prompts(const PackArguments& o) {
  FileSystem& fs = real_file_system();
  const std::string path = pack_path(o.prompts);
  const std::vector<SavedPrompts> prompts = read_prompt_pack(fs.read(path), path);
  const StoredModel stored = open_stored_model(fs, o.model.path());
  std::optional<WeightForm> form;
  if (!o.weights.empty()) form = enum_from<WeightForm>(o.weights, "form of weights");
  const Tokenizer tokenizer = load_tokenizer(stored, o.tokenizer);
  auto chat = chat_template_of(fs, stored);
  if (!chat)
    throw Error(
        fmt::format("'{}' has no chat template, so saved prompts cannot be put to it", o.model.path()),
        "take a model that was trained on conversations (ingot finetune --chat-template)");
  const PackedModel packed(stored, form);
  EngineModel model(packed.model(), tokenizer,
                    {.control = control_tokens(fs, stored, tokenizer), .chat = std::move(chat)});
  std::vector<PlayedPrompts> played;
  for (const SavedPrompts& p : prompts) played.push_back(play(p, model, o.sampling));
  o.json.print(text_for(STDOUT_FILENO, pack_text(played)), json_text(pack_json(played), 2));
}

void add_prompts_command(CLI::App& eval) {
  auto o = std::make_shared<PackArguments>();
  o->sampling.max_tokens = 200;
  CLI::App* c = eval.add_subcommand(
      "prompts", "put saved prompts to a model and show its replies: greetings, personas, several turns");
  add_model_argument(*c, o->model);
  c->add_option("--prompts", o->prompts, "name in tasks/prompts, or a file of JSON lines")
      ->capture_default_str();
  c->add_option("--weights", o->weights, "f32, bf16 or int8; default: as the model was trained");
  c->add_option("--tokenizer", o->tokenizer, "tokenizer folder or file; default: the model's");
  c->add_option("--max-tokens", o->sampling.max_tokens, "of a reply at most")
      ->capture_default_str()
      ->check(in(between(1, 0x1p40)));
  c->add_option("--temperature", o->sampling.temperature, "0: always the most likely token")
      ->capture_default_str()
      ->check(in(up_to(1e6)));
  c->add_option("--seed", o->sampling.seed, "of the sampling")
      ->capture_default_str()
      ->check(in(up_to(0x1p63)));
  add_json_option(*c, o->json);
  c->callback([o] { play_prompts(*o); });
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
  add_experts_command(eval);
  add_prompts_command(eval);
}

}  // namespace ingot
