// `ingot profile`: where the time of the training steps of a recipe or run goes.
#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/bench.h"
#include "apps/checks.h"
#include "apps/command_line.h"
#include "base/file_system.h"
#include "base/log.h"
#include "comm/launch.h"
#include "comm/threads.h"
#include "measure/profile_run.h"
#include "ops/gpu_proof.h"

namespace ingot {
namespace {

struct ProfileArguments {
  std::string path, trace, kernels = "strict";
  JsonOption json;
  ProfileOptions profile;
  int ranks = 0;
  bool layers = false;
};

void profile_rank(const ProfileArguments& o, const ProfiledSteps& steps, World& world) {
  ProfileReport report = profile_run(real_file_system(), steps, o.profile, world);
  if (world.rank() != 0) return;
  report.of = o.path;
  o.json.print(to_text(report, o.layers), to_json(report));
  if (!o.trace.empty()) {
    write_file_atomically(real_file_system(), o.trace, trace_json(report));
    if (!o.json.alone()) std::cout << "\ntrace: " << o.trace << "   (open it at ui.perfetto.dev)\n";
  }
}

void profile(const ProfileArguments& o, const std::vector<std::string>& fields) {
  set_kernels(o.kernels);
  const ProfiledSteps steps = profiled_steps(real_file_system(), o.path, fields, o.profile);
  if (o.ranks > 1) {
    if (find_launch())
      throw Error("--ranks makes ranks of threads, but a launcher started this program as several",
                  "leave --ranks out");
    return run_ranks(
        o.ranks, [&](ThreadRank& self) { profile_rank(o, steps, self); }, 3600);
  }
  const std::unique_ptr<World> world = launch_world();
  world->run([&] { profile_rank(o, steps, *world); });
}

}  // namespace

void add_profile_command(CLI::App& app, int& code) {
  auto o = std::make_shared<ProfileArguments>();
  CLI::App* c = app.add_subcommand(
      "profile", "profile training steps: time by purpose, op, segment and layer, and a trace");
  c->footer(
      "Examples:\n"
      "  ingot profile recipe.toml --steps=2 --phases.0.batch=8   # any field of the recipe can be set\n"
      "  ingot launch -n 2 -- profile recipe.toml --steps=2       # among processes");
  c->add_option("target", o->path,
                "recipe file, or run folder (its newest checkpoint). Nothing is written into the run folder")
      ->required();
  c->add_option("--steps", o->profile.steps, "number of recorded steps")
      ->capture_default_str()
      ->check(in(between(1, 100000)));
  c->add_option("--warm-up", o->profile.warm_up, "unrecorded steps before them")
      ->capture_default_str()
      ->check(in(up_to(100000)));
  c->add_option("--phase,--stage", o->profile.phase,
                "phase of the recipe, by name; default: the current phase of the run, or the first");
  c->add_option("--ranks", o->ranks, "number of ranks, as threads of this program")
      ->check(in(between(1, 1024)));
  c->add_flag("--layers", o->layers, "also print a table by layer");
  c->add_option("--trace", o->trace, "write a trace to this file, for ui.perfetto.dev");
  add_json_option(*c, o->json);
  c->add_option("--scratch", o->profile.scratch,
                "folder for the files of the steps, visible to all ranks; default: the temporary folder");
  c->add_option("--kernels", o->kernels,
                "strict: fast kernels only; any: allow the slow reference; reference; unproven: as any, with "
                "kernels that have not proven themselves on the GPU, for tests")
      ->capture_default_str();
  c->allow_extras();
  c->callback([o, c, &code] {
    profile(*o, c->remaining());
    code = 0;
  });
}

}  // namespace ingot
