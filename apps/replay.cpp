// `ingot replay`: makes steps of a run again and compares the bits.
#include "train/replay.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "base/range.h"
#include "comm/launch.h"
#include "ops/gpu_proof.h"

namespace ingot {
namespace {

struct ReplayArguments {
  ReplayRequest request;
  std::string kernels = "strict";
  JsonOption json;
};

std::string text_of(const ReplayRequest& r, const ReplayReport& report, int ranks) {
  const std::string copies =
      report.copies > 0 ? fmt::format(", {} of them also in what ranks hold after the update", report.copies)
                        : "";
  std::string text = fmt::format("steps {} to {} of '{}', {} rank{}: ", r.from + 1, r.from + r.steps, r.run,
                                 ranks, ranks == 1 ? "" : "s");
  if (!report.difference) {
    if (report.compared == r.steps) return text + fmt::format("all {} steps equal{}\n", r.steps, copies);
    return text + fmt::format("all {} steps that have digests are equal{}\n", report.compared, copies);
  }
  const DigestDifference& d = *report.difference;
  return text + fmt::format("step {} differs first, in the {} of rank {}; before it {} steps equal{}\n",
                            report.different_step, d.what, fmt::join(d.ranks, ", "), report.compared, copies);
}

std::string json_of(const ReplayRequest& r, const ReplayReport& report, int ranks) {
  nlohmann::ordered_json j{{"run", r.run},
                           {"folder", r.folder},
                           {"from", r.from},
                           {"steps", r.steps},
                           {"ranks", ranks},
                           {"equal_steps", report.compared},
                           {"with_copies", report.copies},
                           {"equal", !report.difference}};
  if (report.difference)
    j["first_difference"] = {{"step", report.different_step},
                             {"what", report.difference->what},
                             {"ranks", report.difference->ranks}};
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

int replay(ReplayArguments o) {
  set_kernels(o.kernels);
  ReplayRequest& r = o.request;
  while (r.run.size() > 1 && r.run.ends_with('/')) r.run.pop_back();
  if (r.folder.empty()) r.folder = r.run + "-replay";
  const std::unique_ptr<World> world = launch_world();
  int code = 0;
  world->run([&] {
    const ReplayReport report = replay_run(real_file_system(), r, *world);
    code = report.difference ? 1 : 0;
    if (world->rank() == 0)
      o.json.print(text_of(r, report, world->ranks()), json_of(r, report, world->ranks()));
  });
  return code;
}

}  // namespace

void add_replay_command(CLI::App& app, int& code) {
  auto o = std::make_shared<ReplayArguments>();
  CLI::App* c = app.add_subcommand("replay", "make steps of a run again, and compare their bits");
  c->footer(
      "Compares with the run's digests.jsonl, step by step and rank by rank; exit code 1 where bits differ.\n"
      "Kernels, layout and recipe must be those of the run, which stays as it is.\n"
      "A run of several ranks is replayed by as many (ingot launch -n N -- replay ...).\n"
      "Example:\n  ingot replay runs/first --from 0 --steps 5");
  c->add_option("run", o->request.run, "run folder")->required();
  c->add_option("--from", o->request.from, "step of a checkpoint of the run; 0: its start")
      ->required()
      ->check(in(up_to(bounds::kSteps)));
  c->add_option("--steps", o->request.steps, "how many steps after it")
      ->required()
      ->check(in(between(1, bounds::kSteps)));
  c->add_option("--folder", o->request.folder, "of the replay (default: the run's name and '-replay')");
  c->add_option("--kernels", o->kernels,
                "strict: fast kernels only; any: allow the slow reference; reference; unproven: as any, with "
                "kernels that have not proven themselves on the GPU, for tests")
      ->capture_default_str();
  add_json_option(*c, o->json);
  c->callback([o, &code] { code = replay(*o); });
}

}  // namespace ingot
