// `ingot run`: a recipe, from text to a trained model in a run folder.
#include "apps/run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/metrics_option.h"
#include "base/invocation.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/terminal_text.h"
#include "comm/agree.h"
#include "comm/launch.h"
#include "comm/self_test.h"
#include "ops/gpu_proof.h"
#include "plan/run_forecast.h"
#include "serve/metrics_server.h"
#include "train/memory_policy.h"
#include "train/run_failure.h"
#include "train/run_folder.h"
#include "train/run_layout.h"
#include "train/run_metrics.h"

namespace ingot {
namespace {

struct RunArguments {
  std::string recipe;
  bool print_config = false, plan_only = false, without_data = false, fresh = false, verify_data = false,
       accept_kernels = false;
  Rewind rewind;
  std::string kernels = "strict", device, memory, metrics;
  JsonOption json;
};

void interrupt_training(int) {
  Trainer::interrupt();
}

/// Signals that ask a run to save and end. SIGINT (Ctrl-C) asks once; the second one ends the program at
/// once. The others always ask: schedulers may send them twice, and SIGKILL when their patience ends. SIGHUP
/// says that the terminal is gone, SIGPIPE that nobody reads what is printed; under nohup SIGHUP stays
/// ignored.
void catch_interrupts() {
  struct sigaction action {
  }, before{};
  action.sa_handler = interrupt_training;
  for (const int number : {SIGTERM, SIGUSR1, SIGPIPE}) ::sigaction(number, &action, nullptr);
  ::sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
}

/// A prompt that a shell takes between double quotes.
std::string typed_prompt(const std::vector<Sample>& samples) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || (c != 0 && std::strchr(" ,.;:'-", c) != nullptr);
  };
  for (const Sample& s : samples)
    if (!s.prompt.empty() && std::all_of(s.prompt.begin(), s.prompt.end(), plain)) return s.prompt;
  return "The ";
}

void print_next(const std::string& folder, const std::vector<Sample>& samples = {}) {
  std::cout << as_typed(
      fmt::format("next:\n"
                  "  ingot chat {0}\n"
                  "  ingot serve {0}   # the same in a browser, and OpenAI's API\n"
                  "  ingot generate {0} --prompt \"{1}\"\n"
                  "  ingot eval {0}\n"
                  "  ingot run {0}   # resumes; does nothing if the run is finished\n"
                  "report, for a browser: {2}/report.html\n",
                  shell_word(folder), typed_prompt(samples), folder));
}

int plan_recipe(const Recipe& recipe, const JsonOption& json, bool without_data) {
  const Preflight plan = plan_run(real_file_system(), recipe);
  json.print(plan.text, to_json(plan));
  for (const std::string& w : plan.warnings) log::warn("{}", w);
  if (!plan.shortfall.empty()) log::warn("{}; {}", plan.shortfall, plan.remedy);
  if (plan.missing.empty() || without_data) return 0;
  std::string list;
  for (const std::string& what : plan.missing) list += "\n  " + what;
  throw Error("the run could not start, since it would not find:" + list,
              "put them there, correct the recipe, or plan with --without-data");
}

int run(const RunArguments& o, const std::vector<std::string>& overrides) {
  std::string moved_from;
  const Recipe recipe = load_run(real_file_system(), o.recipe, overrides, &moved_from);
  if (!moved_from.empty())
    log::info("the run in '{}' was moved or copied: it was recorded in '{}'", recipe.run.folder, moved_from);
  if (o.print_config) {
    print_text(print_config(recipe));
    return 0;
  }
  set_kernels(o.kernels);
  if (!o.device.empty()) set_compute_device(enum_from<DeviceKind>(o.device, "device"));
  if (o.plan_only) return plan_recipe(recipe, o.json, o.without_data);
  StartOptions start(o.fresh ? StartMode::fresh : StartMode::resume_or_start);
  start.data = o.verify_data ? DataCheck::everything : DataCheck::changed;
  start.accept_kernels = o.accept_kernels;
  return run_recipe(recipe, start, o.rewind, o.metrics);
}

}  // namespace

namespace {

/// Ranks as processes: rank 0 owns the terminal, each has a log in the run's folder.
void open_log(const Recipe& recipe, int rank) {
  log::set_rank(rank);
  const std::string folder = recipe.run.folder + "/" + run_files::kLogs;
  real_file_system().create_folders(folder);
  if (const std::string path = fmt::format("{}/rank-{}.log", folder, rank); !log::keep_in(path))
    log::warn("cannot write '{}'", path);
}

void find_slow_ranks(const ParallelConfig& p, World& world) {
  if (world.ranks() == 1 || p.self_test.empty()) return;
  const SelfTest found = self_test(world, parse_memory(p.self_test, "parallel.self_test"), p.slowest_rank);
  log::info("{}", found.text);
  if (!found.warning.empty() && world.rank() == 0) log::warn("{}", found.warning);
}

void print_samples(const std::vector<Sample>& samples) {
  const char* term = std::getenv("TERM");
  const bool bold = ::isatty(STDOUT_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
  for (const Sample& s : samples) {
    const std::string prompt = text_for(STDOUT_FILENO, s.prompt);
    std::string name = prompt;
    std::replace(name.begin(), name.end(), '\n', ' ');
    std::cout << fmt::format("\nsample {} of {}, which continues \"{}\":\n{}{}{}{}\n",
                             &s - samples.data() + 1, samples.size(), name, bold ? "\x1b[1m" : "", prompt,
                             bold ? "\x1b[0m" : "", text_for(STDOUT_FILENO, s.text));
  }
  std::cout << "\n";
}

/// Nothing on other ranks than the leading one, or without an address. Where it fails, all ranks do.
std::unique_ptr<serve::MetricsServer> serve_metrics(const std::string& address, Trainer& trainer,
                                                    const RunMetrics& metrics) {
  std::unique_ptr<serve::MetricsServer> server;
  if (address.empty()) return server;
  const std::string url = agree(
      &trainer.engine().ranks().groups().world(), [] { return std::string(); },
      [&](const auto&) {
        server = std::make_unique<serve::MetricsServer>(address, [&metrics] { return metrics.text(); });
        return server->url();
      });
  log::info("metrics for Prometheus: {}", url);
  return server;
}

/// One rank of a run; rank 0 prints.
int train_rank(const Recipe& recipe, const StartOptions& start, const Rewind& rewind, World& world,
               const std::string& metrics_address, bool& trains) {
  if (world.ranks() > 1) open_log(recipe, world.rank());
  world.set_limits(comm_limits(recipe.parallel));
  Trainer trainer(real_file_system(), recipe, start, &world, rewind);
  log::info("{}", trainer.plan().text);
  find_slow_ranks(recipe.parallel, world);
  if (trainer.leads())
    for (const std::string& w : trainer.plan().warnings) log::warn("{}", w);
  if (trainer.finished()) {
    log::info(
        "the run in '{}' is finished: step {} of {}. For more steps raise phases.{}.steps; for another run "
        "set run.folder.",
        recipe.run.folder, trainer.step(), recipe.total_steps(), recipe.phases.size() - 1);
    if (trainer.leads()) print_next(recipe.run.folder);
    return 0;
  }
  if (trainer.leads()) trainer.expect(forecast_steps(trainer.recipe(), world.ranks(), trainer.plan()));
  RunMetrics metrics;
  const auto server = serve_metrics(metrics_address, trainer, metrics);
  trainer.publish(&metrics);
  catch_interrupts();
  trains = true;
  RunStatus status(real_file_system(), recipe.run.folder, world.rank(), trainer.step(),
                   recipe.checkpoint.every);
  trainer.publish(&status);
  const TrainResult r = trainer.run();
  if (!r.finished) {
    log::info("interrupted at step {}, saved; {}", r.step,
              rewind.from ? fmt::format("to resume: ingot run {}", shell_word(recipe.run.folder))
                          : "run the same command to resume");
    return 130;
  }
  log::info("done: step {} after {}", r.step, format_seconds(r.seconds));
  for (const auto& [source, loss] : r.validation) log::info("  validation loss {} {:.4f}", source, loss);
  if (!trainer.leads()) return 0;
  print_samples(r.samples);
  print_next(recipe.run.folder, r.samples);
  return 0;
}

int run_rank(const Recipe& recipe, const StartOptions& start, const Rewind& rewind, World& world,
             const std::string& metrics) {
  bool trains = false;
  try {
    return train_rank(recipe, start, rewind, world, metrics, trains);
  } catch (...) {
    record_failure(real_file_system(), recipe.run.folder, world.rank(), world.step(), trains);
    throw;
  }
}

}  // namespace

int run_recipe(const Recipe& recipe, const StartOptions& start, const Rewind& rewind,
               const std::string& metrics) {
  const std::unique_ptr<World> world = launch_world();
  int code = 0;
  world->run([&] { code = run_rank(recipe, start, rewind, *world, metrics); });
  return code;
}

void add_run_command(CLI::App& app, int& code) {
  auto o = std::make_shared<RunArguments>();
  CLI::App* c = app.add_subcommand("run", "train what a recipe describes; resumes an interrupted run");
  c->footer(
      "Examples:\n"
      "  ingot run recipe.toml                                  # train; the same command resumes\n"
      "  ingot run recipe.toml --plan                           # what it will cost\n"
      "  ingot run recipe.toml --print-config                   # all fields with their meaning\n"
      "  ingot run recipe.toml --phases.0.lr=2e-3 --run.folder=runs/b   # any field can be set");
  c->add_option("recipe", o->recipe, "recipe file (TOML), or the folder of a run to resume")->required();
  c->add_flag("--print-config", o->print_config, "print the complete resolved recipe and exit");
  CLI::Option* plan =
      c->add_flag("--plan", o->plan_only, "print the predicted memory and time of the run and exit");
  add_json_option(*c, o->json)->needs(plan);
  c->add_flag("--without-data", o->without_data,
              "with --plan: also where data, tokenizer or first weights are missing")
      ->needs(plan);
  c->add_flag("--fresh", o->fresh, "start a new run; an error if the run folder already holds one");
  CLI::Option* from = c->add_option(
      "--from", o->rewind.from,
      "go back to the checkpoint of this step and continue from it; what came after it is dropped");
  from->check(in(between(1, bounds::kSteps)))->excludes("--fresh");
  c->add_option("--skip-batches", o->rewind.skip_batches,
                "with --from: leave out that many batches of data there")
      ->check(in(between(1, bounds::kSteps)))
      ->needs(from);
  c->add_flag("--verify-data", o->verify_data,
              "read all text and token shards again, also those that look unchanged");
  c->add_flag("--accept-kernels", o->accept_kernels,
              "resume a run of a program with other kernels; the rest is then not bit for bit the same");
  c->add_option("--memory", o->memory, "memory limit, e.g. 16GiB: the same as --memory.limit");
  add_metrics_option(*c, o->metrics);
  c->add_option("--kernels", o->kernels,
                "strict: fast kernels only; any: allow the slow reference; reference; unproven: as any, with "
                "kernels that have not proven themselves on the GPU, for tests")
      ->capture_default_str();
  c->add_option(
      "--device", o->device,
      "cpu, cuda: an NVIDIA GPU, or sim: a device without memory that the host can read, which has the "
      "CPU's bits, slowly; default: cpu");
  c->allow_extras();
  c->callback([c, o, &code] {
    std::vector<std::string> overrides = c->remaining();
    if (!o->memory.empty()) overrides.push_back("--memory.limit=" + o->memory);
    code = run(*o, overrides);
  });
}

}  // namespace ingot
