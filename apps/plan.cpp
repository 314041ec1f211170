// `ingot plan`: what a recipe costs on ranks that need not be here.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <initializer_list>
#include <optional>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "base/file_system.h"
#include "base/log.h"
#include "measure/published.h"
#include "plan/advice.h"
#include "plan/budget.h"
#include "plan/page.h"
#include "plan/published_speed.h"
#include "plan/run_time.h"
#include "plan/search.h"
#include "report/accuracy.h"
#include "train/rank_check.h"
#include "train/run_folder.h"

namespace ingot {
namespace {

struct PlanArguments {
  std::string recipe, cluster, phase, html;
  std::vector<std::string> slow, runs;
  bool published = false, budget = false, search = false, advice = false;
  TimeFor time;
  PlanFor what{0, 1};
  int rank = -1;
  JsonOption json;
};

/// "2:1.5": the ranks at position 2 take 1.5 times as long.
std::map<int, double> slow_ranks(const std::vector<std::string>& texts) {
  std::map<int, double> slow;
  for (const std::string& text : texts) {
    const size_t colon = text.find(':');
    if (colon == std::string::npos)
      throw Error(fmt::format("--slow {}: expected STAGE:FACTOR", text), "write it as --slow 2:1.5");
    slow[static_cast<int>(parse_integer(text.substr(0, colon), up_to(bounds::kRanks), "--slow"))] =
        parse_number(text.substr(colon + 1), between(1, 1e6), "--slow");
  }
  return slow;
}

void write_page(const PlanArguments& o, PlanPage page, const std::string& cluster) {
  if (o.html.empty()) return;
  page.recipe = std::filesystem::path(o.recipe).stem().string(), page.cluster = cluster, page.rank = o.rank;
  write_file_atomically(real_file_system(), o.html, render_plan_page(page));
}

/// What a mode does not use is refused by name, so that no answer seems to be one to it.
void refuse_unused(CLI::App& c) {
  const auto refuse = [&](const char* mode, std::initializer_list<const char*> unused) {
    for (const char* option : unused) c.get_option(mode)->excludes(c.get_option(option));
  };
  refuse("--accuracy", {"--cluster"});
  for (const char* mode : {"--published", "--accuracy"})
    refuse(mode, {"recipe", "--budget", "--search", "--advice", "--type", "--links", "--slow", "--ranks",
                  "--rank", "--phase", "--imbalance", "--document-tokens", "--html"});
  refuse("--published", {"--accuracy", "--json"});
  // A search looks at the fullest ranks of layouts whose stages differ, with an even routing; advice changes
  // the layout too.
  refuse("--search", {"--advice", "--budget", "--slow", "--rank", "--imbalance", "--document-tokens"});
  refuse("--advice", {"--budget", "--rank", "--imbalance", "--document-tokens", "--html"});
}

/// The fields of a recipe that stand on the command line. Some modes have no recipe.
void refuse_fields(const char* mode, const std::vector<std::string>& fields) {
  if (!fields.empty())
    throw UsageError(fmt::format("{}: {} plans no recipe", fields.front(), mode),
                     fmt::format("leave out {}, or name the recipe and leave out {}", fields.front(), mode));
}

int make_plan(PlanArguments o, const std::vector<std::string>& overrides) {
  if (o.published) {
    refuse_fields("--published", overrides);
    print_text(o.cluster.empty() ? published::to_text(published::all())
                                 : published::to_text(published::speeds(load_cluster(o.cluster))));
    return 0;
  }
  if (!o.runs.empty()) {
    refuse_fields("--accuracy", overrides);
    const std::vector<StartAccuracy> found = read_accuracy(real_file_system(), o.runs);
    o.json.print(to_text(found), to_json(found));
    return 0;
  }
  if (o.recipe.empty()) throw UsageError("ingot plan needs a recipe", "ingot plan RECIPE --ranks N");
  Recipe recipe = with_planned_vocabulary(real_file_system(), load_recipe(o.recipe, overrides));
  if (!o.phase.empty()) recipe = only_phase(std::move(recipe), o.phase);
  if (o.what.ranks == 0) o.what.ranks = planned_ranks(recipe);
  if (o.search) {
    const Cluster cluster = load_cluster(o.cluster);
    const SearchResult found = search_layouts(recipe, o.what.ranks, cluster, o.time);
    o.json.print(to_text(found), to_json(found));
    write_page(o, {.search = &found}, cluster.name);
    return 0;
  }
  if (o.advice) {
    const auto recipe_with = [&](const std::vector<std::string>& fields) {
      std::vector<std::string> all = overrides;
      all.insert(all.end(), fields.begin(), fields.end());
      return with_planned_vocabulary(real_file_system(), load_recipe(o.recipe, all));
    };
    o.time.slow = slow_ranks(o.slow);
    const Advice advice = advise(recipe_with, o.phase, o.what.ranks, load_cluster(o.cluster), o.time);
    o.json.print(to_text(advice), to_json(advice));
    return 0;
  }
  const RunPlan plan = plan_ranks(recipe, o.what);
  std::string text = to_text(plan, o.rank), json = to_json(plan);
  if (!o.cluster.empty()) {
    const Cluster cluster = load_cluster(o.cluster);
    o.time.slow = slow_ranks(o.slow), o.time.traces = !o.html.empty();
    const RunTime time = time_run(plan, cluster, o.time);
    std::optional<RunBudget> budget;
    if (o.budget) budget = budget_run(recipe, plan, time, cluster);
    text += describe_fit(plan, cluster) + to_text(time) + (budget ? to_text(*budget) : "");
    json = fmt::format("{{\n\"plan\": {},\n\"time\": {}{}\n}}", json, to_json(time),
                       budget ? ",\n\"budget\": " + to_json(*budget) : "");
    write_page(o, {.plan = &plan, .time = &time, .budget = budget ? &*budget : nullptr}, cluster.name);
  } else {
    write_page(o, {.plan = &plan}, "");
  }
  o.json.print(text, json);
  for (const std::string& w : plan.warnings) log::warn("{}", w);
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, int& code) {
  auto o = std::make_shared<PlanArguments>();
  CLI::App* c = app.add_subcommand("plan", "what a recipe costs on any number of ranks, without them");
  c->footer(
      "Examples:\n"
      "  ingot plan recipes/sources/deepseek-v3.toml --ranks 256             # memory and work of every "
      "rank\n"
      "  ingot plan recipes/sources/smollm3.toml --ranks 8 --rank 7          # one rank in full\n"
      "  ingot plan recipes/sources/smollm3.toml --phase 'stage 1' --ranks 384 --cluster "
      "clusters/h100-ib.toml\n"
      "  ingot plan recipe.toml --ranks 16 --parallel.tensor=2 --imbalance 1.3\n"
      "  ingot plan --accuracy runs/first runs/b                             # predicted and measured");
  c->add_option("recipe", o->recipe, "recipe file (TOML)");
  c->add_flag(
      "--published", o->published,
      "the papers' own formulas beside the numbers that they print; with --cluster speeds, planned there");
  c->add_option("--accuracy", o->runs, "folders of runs: what they predicted of themselves and measured")
      ->expected(1, -1);
  CLI::Option* cluster =
      c->add_option("--cluster", o->cluster, "file of a cluster (clusters/): also the time of a step there");
  c->add_flag("--budget", o->budget, "also days, device hours, checkpoints and reads of the whole run")
      ->needs(cluster);
  c->add_flag("--search", o->search, "the fastest layouts of these ranks that fit, and why others do not")
      ->needs(cluster);
  c->add_flag("--advice", o->advice,
              "what limits a step there, and what each change of the recipe would bring")
      ->needs(cluster);
  c->add_option("--type", o->time.type, "in which products compute there: f32, bf16 or f8")
      ->check(CLI::IsMember({"f32", "bf16", "f8"}))
      ->needs(cluster);
  c->add_option("--links", o->time.degraded, "what if links between nodes had this share of their rate")
      ->check(in(positive(1)))
      ->needs(cluster);
  c->add_option("--slow", o->slow, "what if the ranks of a stage were slower: STAGE:FACTOR")->needs(cluster);
  c->add_option("--ranks", o->what.ranks, "how many; by default as many as the recipe names")
      ->check(in(between(1, bounds::kRanks)));
  c->add_option("--rank", o->rank, "the rank that is printed in full; by default the fullest")
      ->check(in(up_to(bounds::kRanks)));
  c->add_option("--phase", o->phase, "plan this phase alone; by default the one that takes the most memory");
  c->add_option("--imbalance", o->what.supposed.imbalance,
                "rows that come to a rank's experts, as a multiple of an even routing's")
      ->check(in(between(1, 1e6)));
  c->add_option("--document-tokens", o->what.supposed.document_tokens,
                "length of the document that a token lies in, the mean over tokens; attention stays inside. "
                "By default each sequence is one document")
      ->check(in(between(1, bounds::kSequence)));
  c->add_option("--html", o->html, "write the plan to this file: a self-contained HTML page");
  add_json_option(*c, o->json);
  refuse_unused(*c);
  c->allow_extras();
  c->callback([c, o, &code] { code = make_plan(*o, c->remaining()); });
}

}  // namespace ingot
