// `ingot guard`: keeps a run alive by rules that are data; `guard simulate` proves rules on a cluster of
// numbers, `guard status`, `answer` and `explain` show and direct a guard.
#include "guard/guard.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/guard_metrics.h"
#include "apps/metrics_option.h"
#include "base/clock.h"
#include "base/folder_lock.h"
#include "base/log.h"
#include "base/progress.h"
#include "guard/command_adaptor.h"
#include "guard/job_file.h"
#include "report/table.h"
#include "serve/metrics_server.h"
#include "testbed/scenario_run.h"

namespace ingot::guard {
namespace {

volatile sig_atomic_t asked_to_end = 0;

void end_guard(int) {
  asked_to_end = 1;
}

void print_entry(const Entry& e) {
  std::string line = fmt::format("{:10.1f} s  {:<9}", e.time, name_of(e.event));
  if (!e.rule.empty()) line += fmt::format(" '{}'", e.rule);
  if (!e.actions.empty()) line += fmt::format(" [{}]", list_of(e.actions));
  for (const std::string& node : e.nodes) line += " " + node;
  if (e.event == Event::job || e.event == Event::progress) line += fmt::format(" {}", e.value);
  if (!e.reason.empty()) line += ": " + e.reason;
  print_text(line + "\n");
  std::cout << std::flush;
}

Table books_table(const Books& b) {
  Table table({words("time by cause"), number("hours", 3), number("share %", 2)});
  for (const auto& c : enum_names(Cause{})) {
    const auto ms = static_cast<double>(b.of_ms(c.value));
    if (ms > 0) table.add({std::string(c.name), ms / 3.6e6, 100 * ms / static_cast<double>(b.total_ms())});
  }
  return table;
}

Table faults_table(const Books& b) {
  Table table({words("rule"), number("times", 0), number("found after s", 1), number("mended after s", 1),
               number("lost steps", 0)});
  for (const auto& [rule, f] : b.faults()) {
    const auto n = static_cast<double>(f.count);
    table.add({rule, f.count, f.detect_seconds / n, f.recover_seconds / n, f.lost_steps});
  }
  return table;
}

std::string books_text(const Books& b) {
  return fmt::format("goodput {:.2f} %, {} lost steps\n", 100 * b.goodput(), b.lost_steps()) +
         text_of({books_table(b), faults_table(b)});
}

/// Where the guard's clock stands: it went on while no guard ran.
double clock_begin(const std::string& folder) {
  FileSystem& fs = real_file_system();
  const std::optional<Books> books = FileStore(fs, folder).books();
  const std::optional<FileStamp> stamp = fs.stamp(folder + "/books.json");
  if (!books || !stamp) return 0;
  const double gap = wall_seconds() - static_cast<double>(stamp->modified_ns) / 1e9;
  return static_cast<double>(books->until_ms()) / 1000 + std::clamp(gap, 0.0, 30 * 86'400.0);
}

std::unique_ptr<Adaptor> adaptor_of(const JobFile& job, double begin) {
  Words test = job.burn_in;
  if (test.empty()) test = {std::filesystem::read_symlink("/proc/self/exe"), "burnin", "{run}"};
  return std::make_unique<CommandAdaptor>(
      job.run, job.command,
      job.cluster.empty() ? this_machine(test) : load_config<CommandTemplates>(job.cluster), job.options,
      begin);
}

int guard_job(const std::string& path, const std::string& metrics_address) {
  const JobFile job = load_config<JobFile>(path);
  const std::vector<Rule> rules = load_rules(job.rules);
  const std::string folder = guard_folder(job.run);
  const FolderLock lock(folder, "guard");
  const std::unique_ptr<Adaptor> adaptor = adaptor_of(job, clock_begin(folder));
  FileStore store(real_file_system(), folder);
  GuardMetrics metrics;
  std::optional<serve::MetricsServer> server;
  if (!metrics_address.empty()) {
    server.emplace(metrics_address, [&] { return metrics.text(); });
    log::info("metrics for Prometheus: {}", server->url());
  }
  struct sigaction action {};
  action.sa_handler = end_guard;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
  Guard guard({rules, job.scope, job.stop_seconds}, *adaptor, store);
  for (const Entry& e : store.entries()) metrics.count(e);
  guard.on_entry([&](const Entry& e) {
    print_entry(e);
    metrics.count(e);
  });
  double kept = monotonic_seconds();
  while (!guard.finished() && asked_to_end == 0) {
    guard.tick();
    metrics.publish(guard);
    if (monotonic_seconds() - kept > 10) {
      store.keep(guard.books());
      kept = monotonic_seconds();
    }
    if (!guard.finished()) std::this_thread::sleep_for(std::chrono::duration<double>(job.poll));
  }
  store.keep(guard.books());
  if (!guard.finished()) {
    log::info("the guard ends, the job goes its way; the same command guards it again");
    return 130;
  }
  print_text(books_text(guard.books()));
  return 0;
}

int check(const std::string& path) {
  std::string text;
  try {
    text = check_file(path);
  } catch (const Error& e) {
    throw UsageError(e.what(), e.hint());
  }
  print_text(text);
  return 0;
}

struct SimulateArguments {
  std::string scenario, rules = "recipes/guard-rules.toml";
  bool suite = false;
};

int simulate_suite(const std::vector<Rule>& rules) {
  const double begin = monotonic_seconds();
  const Suite suite = fault_suite();
  SuiteResult result;
  for (const Scenario& s : suite.singles) result.add(run_scenario(s, rules, GuardKind::rules), true);
  for (const Scenario& s : suite.doubles) result.add(run_scenario(s, rules, GuardKind::rules), false);
  for (const std::string& w : result.wrong) print_text("wrong: " + w + "\n");
  for (const std::string& p : result.problems) print_text("problem: " + p + "\n");
  print_text(
      fmt::format("{} scenarios, {:.1f} node-years in {:.1f} s\n"
                  "first decision right: {} of {} single faults; {} of {} double ones, {} asked\n",
                  result.scenarios, result.node_years, monotonic_seconds() - begin, result.right_singles,
                  result.singles, result.right_doubles, result.doubles, result.asked_doubles));
  return result.problems.empty() && result.right_singles == result.singles ? 0 : 1;
}

int simulate(const SimulateArguments& o) {
  const std::vector<Rule> rules = load_rules(o.rules);
  if (o.suite) return simulate_suite(rules);
  if (o.scenario.empty()) throw UsageError("there is no scenario", "name a file, or give --suite");
  const Scenario scenario = load_config<Scenario>(o.scenario);
  bool sound = true;
  for (const GuardKind kind : {GuardKind::rules, GuardKind::restarts}) {
    const double begin = monotonic_seconds();
    const Outcome outcome = run_scenario(scenario, rules, kind);
    for (const std::string& p : outcome.problems) print_text("problem: " + p + "\n");
    sound = sound && (outcome.problems.empty() || kind == GuardKind::restarts);
    print_text(
        fmt::format("{}, {}: {} faults, {} questions, {:.1f} node-years in {:.1f} s\n{}\n", scenario.name,
                    kind == GuardKind::rules ? "with the rules" : "with a restart when the job has ended",
                    outcome.faults.size(), outcome.questions,
                    static_cast<double>(scenario.nodes) * scenario.hours / (24 * 365.25),
                    monotonic_seconds() - begin, books_text(outcome.books)));
  }
  return sound ? 0 : 1;
}

int status(const std::string& run) {
  FileStore store(real_file_system(), run + "/guard");
  const std::vector<Entry> entries = store.entries();
  if (entries.empty())
    throw Error(fmt::format("'{}' has no guard's journal", run), "ingot guard JOB.toml starts one");
  print_text(fmt::format(
      "{}\n", FolderLock::held(run + "/guard", "guard") ? "a guard is at work" : "no guard is at work"));
  const size_t shown = std::min<size_t>(entries.size(), 10);
  for (size_t i = entries.size() - shown; i < entries.size(); ++i) print_entry(entries[i]);
  if (const auto books = store.books()) print_text(books_text(*books));
  return 0;
}

/// Decides again from every situation of the journal; 1 where a decision differs from what was recorded.
int explain(const std::string& job_path) {
  const JobFile job = load_config<JobFile>(job_path);
  const std::vector<Rule> rules = load_rules(job.rules);
  FileStore store(real_file_system(), job.run + "/guard");
  std::vector<PastMatch> past;
  int64_t decisions = 0, differ = 0;
  for (const Entry& e : store.entries()) {
    if (e.event == Event::decided && e.situation) {
      const Judgement j = decide(rules, *e.situation, past, job.scope);
      const bool same = j.decision && j.decision->rule == e.rule && j.decision->actions == e.actions;
      ++decisions;
      differ += !same;
      print_entry(e);
      if (!same)
        print_text(fmt::format("    now it would be {}\n",
                               j.decision
                                   ? fmt::format("'{}' [{}]", j.decision->rule, list_of(j.decision->actions))
                                   : "nothing"));
    }
    remember(past, e);
  }
  print_text(fmt::format("{} decisions, {} would differ now\n", decisions, differ));
  return differ == 0 ? 0 : 1;
}

}  // namespace

static void add_commands(CLI::App& app, int& code) {
  CLI::App* c =
      app.add_subcommand("guard", "keep a run alive: see faults, decide by rules, act, book the time");
  c->footer(
      "Examples:\n"
      "  ingot guard job.toml                     # start the job and stay with it; again: continue\n"
      "  ingot guard check job.toml               # what each rule would do, and what cannot work\n"
      "  ingot guard status runs/first            # what it did, and where the time went\n"
      "  ingot guard answer runs/first restart    # what to do, where it asked\n"
      "  ingot guard simulate --suite             # prove the shipped rules on simulated faults");
  CLI::App* ch = c->add_subcommand("check", "what the rules of a job would do, and what of it cannot work");
  auto checked = std::make_shared<std::string>();
  ch->add_option("file", *checked, "file of a job, or of rules (TOML)")->required();
  ch->footer("The exit code is 2 where something cannot work.");
  ch->callback([checked, &code] { code = check(*checked); });
  auto job = std::make_shared<std::string>();
  c->add_option("job", *job, "file that describes the job (TOML)");
  auto metrics = std::make_shared<std::string>();
  add_metrics_option(*c, *metrics);
  CLI::App* s = c->add_subcommand("simulate", "the rules against a simulated cluster and its faults");
  auto o = std::make_shared<SimulateArguments>();
  s->add_option("scenario", o->scenario, "scenario file (TOML)");
  s->add_option("--rules", o->rules, "rule file")->capture_default_str();
  s->add_flag("--suite", o->suite, "every kind of fault, alone in each phase of a job and in pairs");
  s->callback([o, &code] { code = simulate(*o); });
  CLI::App* st = c->add_subcommand("status", "what a guard did last, and the books of the run");
  auto run = std::make_shared<std::string>();
  st->add_option("run", *run, "the run's folder")->required();
  st->callback([run, &code] { code = status(*run); });
  CLI::App* an = c->add_subcommand("answer", "what a guard that asks shall do");
  auto answer = std::make_shared<std::pair<std::string, std::vector<std::string>>>();
  an->add_option("run", answer->first, "the run's folder")->required();
  an->add_option("actions", answer->second, "actions in their order, e.g. restart")->required();
  an->callback([answer, &code] {
    std::vector<Action> actions;
    for (const std::string& name : answer->second) actions.push_back(enum_from<Action>(name, "action"));
    answer_question(answer->first, actions);
    code = 0;
  });
  CLI::App* ex = c->add_subcommand("explain", "decide again from the journal, and compare");
  auto explained = std::make_shared<std::string>();
  ex->add_option("job", *explained, "file that describes the job (TOML)")->required();
  ex->callback([explained, &code] { code = explain(*explained); });
  c->callback([c, job, metrics, &code] {
    if (!c->get_subcommands().empty()) return;
    if (job->empty()) throw UsageError("there is no job", "ingot guard job.toml, or ingot help guard");
    code = guard_job(*job, *metrics);
  });
}

}  // namespace ingot::guard

namespace ingot {

void add_guard_command(CLI::App& app, int& code) {
  guard::add_commands(app, code);
}

}  // namespace ingot
