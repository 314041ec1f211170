// `ingot environment`: what environments there are, their problems, solutions, verdicts, and rows for
// training.
#include "environments/environment.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/text_io.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "chat/reply_parser.h"
#include "environments/rows.h"
#include "reason/planted_rows.h"
#include "report/table.h"

namespace ingot {
namespace {

namespace envs = environments;

struct EnvironmentArguments {
  std::string name, answer, rows, style = "checked", output, form = "messages";
  std::vector<std::string> mix, styles = {"checked"};
  int64_t difficulty = -1, number = 0, count = 1, size = 1000;
  uint64_t seed = 0;
  double no_think = 0;
  reason::PlantedOptions planted;
  std::string compaction = "tail", reply = "choice";
  bool held_out = false, data = false;
  JsonOption json;
  uint64_t problem_seed() const { return seed + (held_out ? envs::kHeldOutSeeds : 0); }
};

/// The problem that is named: by its id, or as the first of the options' problems.
envs::Problem named_problem(const EnvironmentArguments& o, int64_t further = 0) {
  if (o.name.find('@') != std::string::npos) {
    envs::Problem first = envs::problem_of(o.name);
    if (further == 0) return first;
    return envs::find_environment(first.environment)
        ->make(first.seed, first.number + static_cast<uint64_t>(further), first.difficulty);
  }
  const envs::EnvironmentPointer environment = envs::find_environment(o.name);
  const int64_t difficulty = o.difficulty < 0 ? environment->difficulty().least : o.difficulty;
  return environment->make(o.problem_seed(), static_cast<uint64_t>(o.number + further), difficulty);
}

nlohmann::ordered_json problem_json(const envs::Problem& problem, bool data) {
  nlohmann::ordered_json json = {{"id", problem.id()}, {"prompt", nlohmann::ordered_json::array()}};
  for (const chat::Message& m : problem.prompt.messages)
    json["prompt"].push_back({{"role", m.role}, {"content", m.content.value_or("")}});
  if (data) json["data"] = problem.data;
  return json;
}

std::string prompt_lines(const envs::Problem& problem) {
  std::string text;
  for (const chat::Message& m : problem.prompt.messages) text += m.content.value_or("") + "\n";
  return text;
}

nlohmann::ordered_json verdict_json(const envs::Problem& problem, const envs::Verdict& verdict) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::object();
  for (const envs::RewardPart& part : verdict.parts) parts[part.name] = part.value;
  return {{"id", problem.id()},
          {"reward", verdict.reward},
          {"parts", parts},
          {"answer", verdict.answer},
          {"infrastructure", verdict.infrastructure},
          {"note", verdict.note}};
}

void list_environments(const EnvironmentArguments& o) {
  Table table({words("environment", "name"), words("difficulty", "difficulty"), words("problems", "about")});
  for (const std::string& name : envs::environment_names()) {
    const envs::EnvironmentPointer environment = envs::find_environment(name);
    const envs::DifficultyRange range = environment->difficulty();
    table.add({name, fmt::format("{}-{}", range.least, range.most), environment->about()});
  }
  o.json.print(table.text(), json_text(table.json(), 2));
}

void show_problems(const EnvironmentArguments& o) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  std::string text;
  for (int64_t i = 0; i < o.count; ++i) {
    const envs::Problem problem = named_problem(o, i);
    all.push_back(problem_json(problem, o.data));
    text += fmt::format("{}{}\n{}", i == 0 ? "" : "\n", problem.id(), prompt_lines(problem));
    if (o.data) text += problem.data + "\n";
  }
  o.json.print(text, json_text(all, 2));
}

void solve_problem(const EnvironmentArguments& o) {
  const envs::Problem problem = named_problem(o);
  const envs::EnvironmentPointer environment = envs::find_environment(problem.environment);
  const Random random(o.seed, RandomPurpose::environment, hash64("solve " + problem.id()));
  const auto reply = environment->solve(problem, random, enum_from<envs::TraceStyle>(o.style, "--style"));
  if (!reply)
    throw Error(fmt::format("environment '{}' has no teacher that solves its problems", environment->name()));
  const envs::Verdict verdict = environment->judge(problem, *reply);
  nlohmann::ordered_json json = problem_json(problem, false);
  json["reasoning"] = reply->reasoning_content.value_or("");
  json["answer"] = reply->content.value_or("");
  json["verdict"] = verdict_json(problem, verdict);
  o.json.print(
      fmt::format("{}\n{}reward: {:g}\n", problem.id(), envs::problem_text(problem, *reply), verdict.reward),
      json_text(json, 2));
}

/// What stands between think tags is reasoning, in a reply as a model writes it.
envs::Verdict judge_text(const envs::Problem& problem, const std::string& reply) {
  const chat::ReplyFormat tags{.think_open = "<think>", .think_close = "</think>"};
  return envs::find_environment(problem.environment)->judge(problem, chat::parse_reply(tags, reply));
}

void judge_rows(const EnvironmentArguments& o) {
  const std::string text = read_text_input(o.rows);
  size_t line = 0, right = 0, failed = 0, count = 0;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string row = text.substr(at, end - at);
    at = end + 1, ++line;
    if (row.find_first_not_of(" \t\r") == row.npos) continue;
    const auto parsed = nlohmann::json::parse(row, nullptr, false);
    const auto field = [&](const char* key) {
      return parsed.is_object() && parsed.contains(key) && parsed[key].is_string()
                 ? parsed[key].get<std::string>()
                 : std::string();
    };
    if (field("id").empty() || !parsed.contains("reply") || !parsed["reply"].is_string())
      throw Error(fmt::format("'{}' line {} is no reply to a problem", o.rows, line),
                  R"(rows are {"id": "sort/1/17@5", "reply": "..."})");
    const envs::Problem problem = envs::problem_of(field("id"));
    const envs::Verdict verdict = judge_text(problem, field("reply"));
    ++count, right += verdict.reward >= 1 ? 1 : 0, failed += verdict.infrastructure ? 1 : 0;
    all.push_back(verdict_json(problem, verdict));
  }
  std::string shown;
  for (const auto& one : all) shown += one.dump() + "\n";
  shown += fmt::format("{} of {} right, {} verifiers failed\n", right, count, failed);
  o.json.print(shown, json_text(all, 2));
}

void judge_answer(const EnvironmentArguments& o) {
  if (!o.rows.empty()) {
    if (!o.name.empty()) throw UsageError("a problem and --rows are named", "give one of the two");
    return judge_rows(o);
  }
  if (o.name.empty() || o.answer.empty())
    throw UsageError("a problem and an answer are missing",
                     "give ID ANSWER (-: standard input), or --rows FILE");
  const envs::Problem problem = named_problem(o);
  const envs::Verdict verdict = judge_text(problem, o.answer == "-" ? read_text_input("-") : o.answer);
  const std::string note = verdict.note.empty() ? "" : " (" + verdict.note + ")";
  o.json.print(fmt::format("reward: {:g}{}\n", verdict.reward, note),
               json_text(verdict_json(problem, verdict), 2));
}

/// The form of --form that shows candidates; none for those without.
std::optional<reason::AggregationForm> aggregation_form(const std::string& form) {
  if (form == "aggregation") return reason::AggregationForm::messages;
  if (form == "aggregation_prompts") return reason::AggregationForm::prompts;
  return {};
}

/// What makes row n of an export.
std::function<std::string(uint64_t)> row_maker(const EnvironmentArguments& o) {
  envs::RowRequest request;
  for (const std::string& text : o.mix) request.mix.push_back(envs::problem_mix(text));
  request.styles.clear();
  for (const std::string& style : o.styles)
    request.styles.push_back(enum_from<envs::TraceStyle>(style, "--styles"));
  request.no_think = o.no_think, request.seed = o.problem_seed();
  if (const auto form = aggregation_form(o.form)) {
    reason::PlantedOptions planted = o.planted;
    planted.form = *form;
    planted.reply = enum_from<reason::AggregationReply>(o.reply, "--reply");
    planted.compaction = enum_from<reason::Compaction>(o.compaction, "--compaction");
    return [request, planted, aggregate = reason::AggregateTemplate()](uint64_t n) {
      return reason::planted_row(aggregate, request, n, planted);
    };
  }
  request.form = enum_from<envs::RowForm>(o.form, "--form");
  return [request](uint64_t n) { return envs::problem_row(request, n); };
}

void export_rows(const EnvironmentArguments& o) {
  const std::function<std::string(uint64_t)> row_of = row_maker(o);
  if (o.output.empty()) {
    for (int64_t i = 0; i < o.size; ++i) std::cout << row_of(static_cast<uint64_t>(i)) << "\n";
    return;
  }
  FileSystem& fs = real_file_system();
  const std::string made = o.output + ".part";
  Unfinished unfinished(fs, made);
  {
    const auto file = fs.create(made);
    for (int64_t i = 0; i < o.size; ++i) {
      const std::string row = row_of(static_cast<uint64_t>(i)) + "\n";
      file->append(row.data(), row.size());
    }
    file->sync();
    file->close();
  }
  fs.rename(made, o.output);
  unfinished.keep();
  std::cout << fmt::format("{}: {} rows of {}\n", o.output, o.size,
                           count_of(static_cast<int64_t>(o.mix.size()), "environment"));
}

/// Of the forms that show candidates.
void add_candidate_options(CLI::App& c, EnvironmentArguments& o) {
  c.add_option("--candidates", o.planted.candidates, "that a row of aggregation shows")
      ->check(in(between(1, 1000)))
      ->capture_default_str();
  c.add_option("--right", o.planted.right, "chance that a candidate is right; the others have a mistake")
      ->check(in(between(0, 1)))
      ->capture_default_str();
  c.add_option("--tail", o.planted.tail, "bytes of a candidate that are shown, from its end")
      ->check(in(between(1, 1e6)))
      ->capture_default_str();
  c.add_option("--compaction", o.compaction,
               "what is shown: tail (of the reasoning), pacore or hybrid (the answer)")
      ->capture_default_str();
  add_reply_option(c, o.reply);
}

void require_candidates(const CLI::App& c, const EnvironmentArguments& o) {
  const auto form = aggregation_form(o.form);
  if (form == reason::AggregationForm::prompts && c.count("--reply") > 0)
    throw UsageError("--reply is given, and --form aggregation_prompts has no replies",
                     "leave it out, or give --form aggregation");
  if (form) return;
  for (const char* option : {"--candidates", "--right", "--tail", "--compaction", "--reply"})
    if (c.count(option) > 0)
      throw UsageError(fmt::format("{} is given, and --form {} shows no candidates", option, o.form),
                       "add --form aggregation or aggregation_prompts");
}

void add_problem_options(CLI::App& c, EnvironmentArguments& o) {
  c.add_option("--difficulty", o.difficulty, "of a problem named by its environment; default: the least")
      ->check(in(between(0, 1e6)));
  c.add_option("--number", o.number, "of the problem")->check(in(between(0, 0x1p52)))->capture_default_str();
}

void add_seed_options(CLI::App& c, EnvironmentArguments& o) {
  c.add_option("--seed", o.seed, "of the random numbers")
      ->check(in(between(0, 0x1p32 - 1)))
      ->capture_default_str();
  c.add_flag("--held-out", o.held_out, "problems for evaluation: seeds from 2^32 on");
}

}  // namespace

void add_environment_command(CLI::App& app, int& code) {
  auto o = std::make_shared<EnvironmentArguments>();
  CLI::App* c = app.add_subcommand(
      "environment", "problems that a program makes and judges: list, show, solve, judge, export");
  c->require_subcommand(1);
  const auto command = [&](const char* name, const char* about, void (*run)(const EnvironmentArguments&)) {
    CLI::App* made = c->add_subcommand(name, about);
    made->callback([o, run, &code] { run(*o), code = 0; });
    return made;
  };
  add_json_option(*command("list", "the environments, their difficulties, what they ask", list_environments),
                  o->json);

  CLI::App* show = command("show", "prints problems", show_problems);
  show->add_option("problem", o->name, "an environment, or a problem's id, as sort/1/17@5")->required();
  add_problem_options(*show, *o);
  show->add_option("--count", o->count, "so many problems, numbers in a row")
      ->check(in(between(1, 1e6)))
      ->capture_default_str();
  show->add_flag("--data", o->data, "what the verifier knows too");
  add_seed_options(*show, *o);
  add_json_option(*show, o->json);

  CLI::App* solve =
      command("solve", "prints a teacher's solution of a problem, and its reward", solve_problem);
  solve->add_option("problem", o->name, "an environment, or a problem's id")->required();
  add_problem_options(*solve, *o);
  solve->add_option("--style", o->style, "answer, plain, checked or slips")->capture_default_str();
  add_seed_options(*solve, *o);
  add_json_option(*solve, o->json);

  CLI::App* judge =
      command("judge", "judges replies; what stands in <think>...</think> does not count", judge_answer);
  judge->add_option("problem", o->name, "a problem's id");
  judge->add_option("answer", o->answer, "the reply; -: standard input");
  judge->add_option("--rows", o->rows,
                    "file of replies instead (-: standard input): {\"id\", \"reply\"} a line");
  add_json_option(*judge, o->json);

  CLI::App* rows = command("export", "rows of solved problems for training, as JSON lines", export_rows);
  rows->add_option("environments", o->mix, "NAME, NAME:DIFFICULTY or NAME:LEAST-MOST, and *SHARE: sort:3-8*2")
      ->required();
  rows->add_option("--rows", o->size, "how many")->check(in(between(1, 1e9)))->capture_default_str();
  rows->add_option("--form", o->form,
                   "text, messages, completion, prompts (for RL), aggregation (candidates in "
                   "the question, for SFT) or aggregation_prompts (the same for RL)")
      ->capture_default_str();
  rows->add_option("--styles", o->styles, "of the solutions, drawn alike: answer, plain, checked, slips")
      ->delimiter(',')
      ->capture_default_str();
  rows->add_option("--no-think", o->no_think, "share of rows without reasoning, under /no_think")
      ->check(in(between(0, 1)))
      ->capture_default_str();
  add_candidate_options(*rows, *o);
  rows->add_option("--output", o->output, "file; default: standard output");
  add_seed_options(*rows, *o);
  rows->callback([o, rows, &code] { require_candidates(*rows, *o), export_rows(*o), code = 0; });
}

}  // namespace ingot
