// `ingot bench machine`: peak arithmetic, memory and storage of this machine, and whether the storage is fast
// enough for a run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "apps/bench.h"
#include "apps/checks.h"
#include "apps/command_line.h"
#include "base/file_system.h"
#include "measure/machine.h"
#include "report/metrics.h"
#include "report/run_record.h"
#include "train/memory_policy.h"
#include "train/run_folder.h"

namespace ingot {
namespace {

struct MachineArguments {
  std::vector<std::string> parts{"arithmetic", "memory", "storage"}, io_sizes{"4KiB", "64KiB", "1MiB"};
  std::vector<int> threads, io_threads{1, 4, 16};
  std::string largest, folder = ".", file = "256MiB", run, html;
  JsonOption json;
  double seconds = 0.02, io_seconds = 0.1, step_seconds = 0;
  int trials = 5;
};

MachineOptions options_of(const MachineArguments& o) {
  MachineOptions m;
  const auto has = [&](const char* part) {
    return std::find(o.parts.begin(), o.parts.end(), part) != o.parts.end();
  };
  m.arithmetic = has("arithmetic"), m.memory = has("memory"), m.storage = has("storage");
  m.threads = o.threads;
  m.largest = o.largest.empty() ? 0 : parse_memory(o.largest, "--largest");
  m.seconds = o.seconds;
  m.trials = o.trials;
  m.disk.folder = o.folder;
  m.disk.file_bytes = parse_memory(o.file, "--file");
  m.disk.threads = o.io_threads;
  m.disk.bytes.clear();
  for (const std::string& size : o.io_sizes) m.disk.bytes.push_back(parse_memory(size, "--io-sizes"));
  m.disk.seconds = o.io_seconds;
  m.disk.trials = o.trials;
  return m;
}

/// Median seconds of the steps that a run has made; 0: none.
double measured_step(FileSystem& fs, const std::string& folder) {
  const std::string path = folder + "/" + run_files::kMetrics;
  std::vector<double> seconds;
  if (fs.exists(path))
    for (const MetricRow& row : read_metrics(fs, path))
      if (const double* s = row.scalar("step_seconds")) seconds.push_back(*s);
  return seconds.empty() ? 0 : spread_of(std::move(seconds)).median;
}

LoaderDemand demand_of(const MachineArguments& o, const MachineReport& report) {
  FileSystem& fs = real_file_system();
  const Recipe recipe = load_run(fs, o.run, {});
  LoaderDemand d = loader_demand(recipe, prepare_data(fs, recipe));
  d.of = o.run;
  d.step_seconds = o.step_seconds > 0 ? o.step_seconds : measured_step(fs, recipe.run.folder);
  if (report.storage) d.most_iops = report.storage->most_reads(d.page);
  return d;
}

void bench_machine(const MachineArguments& o) {
  MachineReport report = measure_machine(options_of(o));
  if (!o.run.empty()) report.demand = demand_of(o, report);
  o.json.print(to_text(report), to_json(report));
  if (!o.html.empty()) write_file_atomically(real_file_system(), o.html, render_machine_page(report));
}

}  // namespace

void add_bench_machine(CLI::App& bench, int& code) {
  auto o = std::make_shared<MachineArguments>();
  CLI::App* c = bench.add_subcommand(
      "machine", "peak FLOP/s, memory bandwidth by working set, storage by threads and transfer size");
  c->footer("Medians of interleaved trials. Measure on an idle machine; `ingot doctor` tells whether it is.");
  c->add_option("--parts", o->parts, "what to measure")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember({"arithmetic", "memory", "storage"}));
  c->add_option("--threads", o->threads, "numbers of threads; default: powers of two up to all")
      ->check(in(between(1, 1024)))
      ->delimiter(',');
  c->add_option("--trials", o->trials, "number of trials")
      ->capture_default_str()
      ->check(in(between(1, 1000)));
  c->add_option("--seconds", o->seconds, "approximate seconds of a memory trial")
      ->capture_default_str()
      ->check(in(positive(1e6)));
  c->add_option("--largest", o->largest,
                "largest working set of a thread; default: many times the last cache, if memory allows");
  c->add_option("--folder", o->folder, "folder on the storage to measure")->capture_default_str();
  c->add_option("--file", o->file, "size of the test file there")->capture_default_str();
  c->add_option("--io-sizes", o->io_sizes, "sizes of transfers")->delimiter(',')->capture_default_str();
  c->add_option("--io-threads", o->io_threads, "numbers of concurrent threads")
      ->check(in(between(1, 1024)))
      ->delimiter(',')
      ->capture_default_str();
  c->add_option("--io-seconds", o->io_seconds, "seconds of a storage trial")
      ->capture_default_str()
      ->check(in(positive(1e6)));
  c->add_option("--run", o->run,
                "recipe or run folder: compare the storage with what reading its samples needs");
  c->add_option("--step-seconds", o->step_seconds, "seconds of its step; default: the median of the run")
      ->check(in(positive(1e9)));
  add_json_option(*c, o->json);
  c->add_option("--html", o->html, "write plots to this file: a self-contained HTML page");
  c->callback([o, &code] {
    bench_machine(*o);
    code = 0;
  });
}

}  // namespace ingot
