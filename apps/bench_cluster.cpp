// `ingot bench cluster`: measures this machine, and writes the file by which `ingot plan --cluster` plans for
// it.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/bench.h"
#include "apps/checks.h"
#include "apps/command_line.h"
#include "base/file_system.h"
#include "base/invocation.h"
#include "comm/launch.h"
#include "measure/measured_cluster.h"
#include "measure/profile_run.h"
#include "models/presets.h"
#include "train/memory_policy.h"

namespace ingot {
namespace {

struct ClusterArguments {
  std::vector<std::string> runs;
  std::string out, largest = "16MiB", file = "256MiB";
  ClusterMeasureOptions measure;
  ProfileOptions profile{.steps = 3, .warm_up = 1, .saves = 4};
  int64_t vocab = 0;
  double io_seconds = 0.1;
};

ClusterMeasureOptions cluster_options(const ClusterArguments& o) {
  ClusterMeasureOptions m = o.measure;
  std::sort(m.lengths.begin(), m.lengths.end());
  const int64_t preset = model_preset(m.preset).vocab;
  m.vocab = o.vocab > 0 ? o.vocab : preset > 0 ? preset : 8192;
  constexpr int64_t kSmallest = 4096;
  const int64_t last = parse_memory(o.largest, "--largest");
  for (int64_t size = kSmallest; size <= last; size *= 4) m.messages.push_back(size);
  if (m.messages.size() < 2)
    throw Error(fmt::format("--largest={}: links are fitted to messages from 4KiB to it", o.largest),
                "give at least 16KiB");
  m.disk.file_bytes = parse_memory(o.file, "--file");
  m.disk.bytes = {4096, std::min<int64_t>(int64_t{1} << 20, m.disk.file_bytes)};
  m.disk.threads = {1, 4, 16};
  m.disk.seconds = o.io_seconds, m.disk.trials = m.trials;
  return m;
}

void bench_cluster(const ClusterArguments& o, const std::vector<std::string>& fields) {
  if (o.runs.empty() && !fields.empty())
    throw UsageError(fmt::format("'{}' changes a recipe, but --run names none", fields.front()),
                     "name a recipe or the folder of a run with --run");
  const ClusterMeasureOptions options = cluster_options(o);
  std::vector<ProfiledSteps> steps;
  for (const std::string& run : o.runs)
    steps.push_back(profiled_steps(real_file_system(), run, fields, o.profile));
  const std::unique_ptr<World> world = launch_world();
  world->run([&] {
    std::vector<ProfileReport> profiles;
    for (const ProfiledSteps& s : steps)
      profiles.push_back(profile_run(real_file_system(), s, o.profile, *world));
    const Cluster cluster = measure_cluster(*world, options, profiles);
    if (world->rank() != 0) return;
    write_file_atomically(real_file_system(), o.out, cluster_file(cluster));
    print_text(describe_measured(cluster) +
               as_typed(fmt::format("next:\n  ingot plan RECIPE --ranks {} --cluster {}\n", cluster.devices,
                                    shell_word(o.out))));
  });
}

}  // namespace

void add_bench_cluster(CLI::App& bench, int& code) {
  auto o = std::make_shared<ClusterArguments>();
  CLI::App* c = bench.add_subcommand("cluster", "measure this machine as a cluster file for `ingot plan`");
  c->footer(
      "Examples:\n"
      "  ingot bench cluster --out here.toml --trials=1 --sizes=128,512   # one device: all cores\n"
      "  ingot launch -n 2 -- bench cluster --out here.toml --trials=1 --sizes=128,512   # two, and links\n"
      "  ingot bench cluster --out here.toml --trials=1 --sizes=128,512 --run runs/first   # and its steps\n"
      "All ranks measure at once. Use an idle machine, and to plan with the file, the default trials and\n"
      "sizes, which take about a minute.");
  c->add_option("--out", o->out, "the file to write")->required();
  c->add_option("--run", o->runs, "recipes, or folders of runs, whose steps are profiled for more points");
  c->add_option("--steps", o->profile.steps, "steps of --run that count")
      ->capture_default_str()
      ->check(in(between(1, 100000)));
  c->add_option("--name", o->measure.name, "of the cluster; default: the processor's");
  c->add_option("--preset", o->measure.preset, "preset whose products and attention are measured")
      ->capture_default_str();
  c->add_option("--vocab", o->vocab, "its vocabulary; default: that of the preset, or 8192")
      ->check(in(between(1, bounds::kVocabulary)));
  c->add_option("--sizes", o->measure.sizes, "rows and columns of products")
      ->capture_default_str()
      ->check(in(between(1, bounds::kHidden)))
      ->delimiter(',');
  c->add_option("--depths", o->measure.depths, "length of their sums")
      ->capture_default_str()
      ->check(in(between(1, bounds::kHidden)))
      ->delimiter(',');
  c->add_option("--lengths", o->measure.lengths, "tokens of a sequence, for attention")
      ->capture_default_str()
      ->check(in(between(1, bounds::kSequence)))
      ->delimiter(',');
  c->add_option("--trials", o->measure.trials, "number of trials")
      ->capture_default_str()
      ->check(in(between(1, 1000)));
  c->add_option("--seconds", o->measure.seconds, "minimum seconds of a trial of a kernel")
      ->capture_default_str()
      ->check(in(positive(1e6)));
  c->add_option("--comm-seconds", o->measure.comm_seconds, "approximate seconds of a collective and size")
      ->capture_default_str()
      ->check(in(positive(1e6)));
  c->add_option("--largest", o->largest, "largest message between ranks")->capture_default_str();
  c->add_option("--folder", o->measure.disk.folder, "on the storage to measure")->capture_default_str();
  c->add_option("--file", o->file, "size of the file that is read and written there")->capture_default_str();
  c->add_option("--io-seconds", o->io_seconds, "seconds of a trial of the storage")
      ->capture_default_str()
      ->check(in(positive(1e6)));
  c->allow_extras();
  c->callback([o, c, &code] {
    bench_cluster(*o, c->remaining());
    code = 0;
  });
}

}  // namespace ingot
