// `ingot doctor` and `ingot burnin`: what slows down or prevents runs on a machine, found by looking at it,
// and by working it hard.
#include "measure/doctor.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/bench.h"
#include "apps/checks.h"
#include "apps/command_line.h"
#include "comm/launch.h"
#include "measure/burn_in.h"
#include "measure/expectation.h"
#include "report/table.h"
#include "train/memory_policy.h"

namespace ingot {
namespace {

/// A line per test, the remedy below it, and how many failed.
std::string burn_in_text(const std::vector<Finding>& findings) {
  Table table({words(""), words(""), words("")});
  for (const Finding& f : findings) {
    table.add({name_of(f.level), f.topic, f.text});
    if (!f.remedy.empty()) table.add({{}, {}, "-> " + f.remedy});
  }
  const auto failed = std::count_if(findings.begin(), findings.end(),
                                    [](const Finding& f) { return f.level == Finding::Level::problem; });
  return table.text() + (failed > 0 ? fmt::format("{} of {} tests failed\n", failed, findings.size())
                                    : fmt::format("all {} tests passed\n", findings.size()));
}

struct DoctorArguments {
  std::string folder = ".", disk = "64MiB", expect;
  std::vector<std::string> logs;
  double band = 0.2;
  JsonOption json;
};

int show_findings(const DoctorArguments& o, const std::vector<Finding>& findings) {
  o.json.print(to_text(findings), to_json(findings));
  return any_problem(findings) ? 1 : 0;
}

int examine_machine(const DoctorArguments& o) {
  DoctorOptions options;
  options.folder = o.folder, options.logs = o.logs;
  options.disk_bytes = o.disk == "0" ? 0 : parse_memory(o.disk, "--disk");
  if (o.expect.empty()) return show_findings(o, examine(options));
  const Cluster expected = load_cluster(o.expect);
  int code = 0;
  const std::unique_ptr<World> world = launch_world();
  world->run([&] {
    const Cluster measured = measure_cluster(*world, self_test_options(options.folder, options.disk_bytes));
    if (world->rank() != 0) return;
    std::vector<Finding> findings = examine(options);
    for (Finding& f : compare_with(expected, measured, o.band)) findings.push_back(std::move(f));
    code = show_findings(o, findings);
  });
  return code;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& code) {
  auto o = std::make_shared<DoctorArguments>();
  CLI::App* c = app.add_subcommand("doctor", "check this machine for what slows down or prevents runs");
  c->footer(
      "Examples:\n"
      "  ingot doctor --disk=0                                    # look, without measuring the disk\n"
      "With --expect it measures, and compares; under `ingot launch -n 2 -- doctor` the links between ranks, "
      "too.\n"
      "The exit code is 0 unless there is a problem.");
  c->add_option("folder", o->folder, "where runs will be stored")->capture_default_str();
  c->add_option("--disk", o->disk, "bytes to write there three times to measure the disk; 0: skip")
      ->capture_default_str();
  c->add_option("--log", o->logs,
                "log of a collective library (NCCL_DEBUG=INFO) or output of `nvidia-smi topo -p2p r`: which "
                "ways data takes");
  CLI::Option* expect =
      c->add_option("--expect", o->expect, "cluster file: measure, and compare with what it says of a host");
  c->add_option("--band", o->band, "share by which a measurement may be slower than the file")
      ->capture_default_str()
      ->check(in(positive(1)))
      ->needs(expect);
  add_json_option(*c, o->json);
  c->callback([o, &code] { code = examine_machine(*o); });
}

void add_burnin_command(CLI::App& app, int& code) {
  struct BurnInArguments {
    std::string folder = ".", disk;
    int level = 1;
    double seconds = 0, least_gflops = 0;
    JsonOption json;
  };
  auto o = std::make_shared<BurnInArguments>();
  CLI::App* c = app.add_subcommand("burnin", "work this machine hard, and check every bit of what it does");
  c->footer(
      "Examples:\n"
      "  ingot burnin --seconds 1                    # products, memory and disk of this machine\n"
      "  ingot launch -n 2 -- burnin --seconds 1     # of the machine of every rank, and the links between "
      "them\n"
      "The exit code is 0 where all tests passed, else 1.");
  c->add_option("folder", o->folder, "whose disk is tested")->capture_default_str();
  c->add_option("--level", o->level, "1: seconds, 2: two minutes, 3: half an hour, 4: two hours")
      ->capture_default_str()
      ->check(in(between(1, 4)));
  c->add_option("--seconds", o->seconds, "of products, in place of the level's")->check(in(positive(1e6)));
  c->add_option("--disk", o->disk, "bytes to write and read back, in place of the level's; 0: skip");
  c->add_option("--least-gflops", o->least_gflops, "fp32 products of all threads that are slower fail")
      ->check(in(up_to(1e9)));
  add_json_option(*c, o->json);
  c->callback([o, &code] {
    BurnInOptions options = burn_in_level(o->level);
    options.folder = o->folder;
    options.least_gflops = o->least_gflops;
    if (o->seconds > 0) options.seconds = o->seconds;
    if (!o->disk.empty()) options.disk_bytes = o->disk == "0" ? 0 : parse_memory(o->disk, "--disk");
    if (!find_launch()) {
      const std::vector<Finding> findings = burn_in(options);
      o->json.print(burn_in_text(findings), to_json(findings));
      code = any_problem(findings) ? 1 : 0;
      return;
    }
    const std::unique_ptr<World> world = launch_world();
    world->run([&] {
      const std::vector<Finding> findings = burn_in_ranks(*world, options);
      if (world->rank() == 0) o->json.print(burn_in_text(findings), to_json(findings));
      code = any_problem(findings) ? 1 : 0;
    });
  });
}

}  // namespace ingot
