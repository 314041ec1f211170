// `ingot bench device`: the kernels of a GPU, each against what the GPU can do.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/bench.h"
#include "apps/checks.h"
#include "apps/command_line.h"
#include "measure/device_bench.h"

namespace ingot {
namespace {

struct DeviceArguments {
  std::string device = "cuda";
  std::vector<std::string> parts;
  DeviceBenchOptions bench;
  JsonOption json;
};

}  // namespace

void add_bench_device(CLI::App& bench, int& code) {
  auto o = std::make_shared<DeviceArguments>();
  CLI::App* c = bench.add_subcommand(
      "device", "kernels of a GPU: products, rows, updates, attention, copies, as shares of its limits");
  c->footer(
      "Examples:\n"
      "  ingot bench device --device=sim --small --trials=1 --seconds=0.0001   # a dry run\n"
      "Kernels run whether or not they have proven themselves (`ingot gpu prove`).");
  for (const DevicePart part : kEveryDevicePart) o->parts.emplace_back(name_of(part));
  c->add_option("--device", o->device, "cuda: an NVIDIA GPU; sim: a dry run, whose rates mean nothing")
      ->capture_default_str();
  c->add_option("--parts", o->parts, "what to measure, all of it unless named")
      ->delimiter(',')
      ->check(CLI::IsMember(o->parts));
  c->add_flag("--small", o->bench.small, "sizes that an emulator takes");
  c->add_option("--trials", o->bench.trials, "number of trials")
      ->capture_default_str()
      ->check(in(between(1, 1000)));
  c->add_option("--seconds", o->bench.seconds, "minimum seconds of a trial")
      ->capture_default_str()
      ->check(in(positive(1e6)));
  add_json_option(*c, o->json);
  c->callback([o, &code] {
    o->bench.parts.clear();
    for (const DevicePart part : kEveryDevicePart)
      if (std::find(o->parts.begin(), o->parts.end(), name_of(part)) != o->parts.end())
        o->bench.parts.push_back(part);
    const DeviceBenchReport report = bench_device(enum_from<DeviceKind>(o->device, "device"), o->bench);
    o->json.print(to_text(report), to_json(report));
    code = 0;
  });
}

}  // namespace ingot
