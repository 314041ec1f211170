// `ingot bench` and its part `ingot bench comm`: speed of the collectives and messages between ranks.
#include "apps/bench.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "base/file_system.h"
#include "comm/launch.h"
#include "comm/threads.h"
#include "measure/comm_report.h"
#include "train/memory_policy.h"

namespace ingot {
namespace {

struct CommArguments {
  std::vector<int> ranks;
  std::string smallest = "1KiB", largest = "64MiB", html;
  JsonOption json;
  double seconds = 0.05;
};

CommMeasureOptions measure_options(const CommArguments& o, int world) {
  CommMeasureOptions m;
  m.seconds = o.seconds;
  m.ranks = o.ranks;
  if (m.ranks.empty()) {
    for (int n = 2; n < world; n *= 2) m.ranks.push_back(n);
    m.ranks.push_back(world);
  }
  for (const int n : m.ranks)
    if (n < 2 || n > world)
      throw Error(fmt::format("--ranks={}: this world has {} ranks", n, world),
                  "give numbers from 2 to its size");
  const int64_t last = parse_memory(o.largest, "--largest");
  for (int64_t size = std::max<int64_t>(4, parse_memory(o.smallest, "--smallest")); size <= last; size *= 4)
    m.bytes.push_back(size);
  if (m.bytes.empty())
    throw Error(fmt::format("no size between {} and {}", o.smallest, o.largest), "raise --largest");
  return m;
}

void print(const CommArguments& o, const CommReport& report, const std::string& backend) {
  o.json.print(to_text(report, backend), to_json(report, backend));
  if (!o.html.empty()) write_file_atomically(real_file_system(), o.html, render_comm_page(report, backend));
}

void bench_comm(const CommArguments& o) {
  if (const auto launch = find_launch()) {
    const std::unique_ptr<World> world = launch_world();
    world->run([&] {
      const CommReport report = measure_comm(*world, measure_options(o, world->ranks()));
      if (world->rank() == 0)
        print(o, report, fmt::format("{} processes, {}", world->ranks(), launch->launcher));
    });
    return;
  }
  const int ranks = o.ranks.empty() ? 2 : *std::max_element(o.ranks.begin(), o.ranks.end());
  constexpr int kMostThreads = 1024;
  if (ranks > kMostThreads)
    throw Error(fmt::format("--ranks={}: ranks of one process are threads, at most {}", ranks, kMostThreads),
                "start processes: ingot launch -n N -- bench comm");
  const CommMeasureOptions options = measure_options(o, ranks);
  run_ranks(ranks, [&](ThreadRank& self) {
    const CommReport report = measure_comm(self, options);
    if (self.rank() == 0) print(o, report, fmt::format("{} threads of one process", ranks));
  });
}

}  // namespace

void add_bench_command(CLI::App& app, int& code) {
  add_doctor_command(app, code);
  add_burnin_command(app, code);
  add_profile_command(app, code);
  CLI::App* bench = app.add_subcommand("bench",
                                       "benchmarks: machine, matrix products, ops, a GPU, steps, decoding, "
                                       "communication, all as a cluster file");
  bench->require_subcommand(1);
  add_bench_machine(*bench, code);
  add_bench_step(*bench, code);
  add_bench_decode(*bench, code);
  add_bench_gemm(*bench, code);
  add_bench_ops(*bench, code);
  add_bench_device(*bench, code);
  add_bench_cluster(*bench, code);
  auto o = std::make_shared<CommArguments>();
  CLI::App* c = bench->add_subcommand(
      "comm", "time and bandwidth of the collectives, by size and number of ranks, and of messages by pair");
  c->footer(
      "Examples:\n"
      "  ingot bench comm --seconds=0.01                       # ranks that are threads of this process\n"
      "  ingot launch -n 2 -- bench comm --seconds=0.01        # ranks that are processes");
  c->add_option("--ranks", o->ranks, "sizes of groups to measure, e.g. 2,4; default: powers of two up to all")
      ->check(in(between(1, bounds::kRanks)))
      ->delimiter(',');
  c->add_option("--smallest", o->smallest, "smallest tensor")->capture_default_str();
  c->add_option("--largest", o->largest, "largest tensor; each next one has four times the bytes")
      ->capture_default_str();
  c->add_option("--seconds", o->seconds, "approximate seconds per measurement")
      ->capture_default_str()
      ->check(in(positive(1e6)));
  add_json_option(*c, o->json);
  c->add_option("--html", o->html, "write plots to this file: a self-contained HTML page");
  c->callback([o, &code] {
    bench_comm(*o);
    code = 0;
  });
}

}  // namespace ingot
