// `ingot bench step PRESET`: speed of one training step, as a share of the peak.
#include <CLI/CLI.hpp>
#include <iostream>
#include <limits>

#include "apps/bench.h"
#include "apps/checks.h"
#include "apps/command_line.h"
#include "base/file_system.h"
#include "measure/step_bench.h"
#include "ops/gpu_proof.h"

namespace ingot {
namespace {

struct StepArguments {
  PresetStep step;
  JsonOption json;
  int trials = 9, warm_up = 3;
  bool quiet = false, paced = false;
  std::string device, kernels = "strict";
};

/// A trial for each line of standard input, each trial a line of JSON on standard output.
StepBenchPace by_lines() {
  const auto say = [](const StepBenchReport& r) { std::cout << trial_line(r) << std::endl; };
  return {.next =
              [say](const StepBenchReport& r) {
                if (r.trials.empty()) say(r);
                std::string line;
                return static_cast<bool>(std::getline(std::cin, line));
              },
          .done = say};
}

}  // namespace

void add_bench_step(CLI::App& bench, int& code) {
  auto o = std::make_shared<StepArguments>();
  CLI::App* c =
      bench.add_subcommand("step", "one training step: tokens per second, share of the peak, time by op");
  c->footer(
      "Examples:\n"
      "  ingot bench step zaya-tiny --batch=2 --length=64 --trials=3 --optimizer.matrices=adamw   # any "
      "field can be set\n"
      "The peak is measured directly before and after every trial: of fp32, or on a GPU of a large product "
      "of "
      "bf16.");
  c->add_option("preset", o->step.preset, "preset of the model; `ingot model` lists them")->required();
  c->add_option("--batch", o->step.batch, "sequences per step")
      ->check(in(between(1, bounds::kBatch)))
      ->capture_default_str();
  c->add_option("--length", o->step.length, "tokens per sequence")
      ->check(in(between(1, bounds::kSequence)))
      ->capture_default_str();
  c->add_option("--micro", o->step.micro, "sequences per micro-batch; 0: all")
      ->check(in(up_to(bounds::kBatch)))
      ->capture_default_str();
  c->add_option("--vocab", o->step.vocab, "vocabulary size; default: that of the preset, or 8192")
      ->check(in(between(1, bounds::kVocabulary)));
  c->add_option("--trials", o->trials, "number of measured steps")
      ->capture_default_str()
      ->check(in(between(1, 100000)));
  c->add_option("--warm-up", o->warm_up, "unmeasured steps before them")
      ->capture_default_str()
      ->check(in(up_to(100000)));
  c->add_flag("--bf16", o->step.bf16, "bf16 operands, fp32 accumulation and master weights");
  c->add_flag("--quiet", o->quiet, "omit the table of ops");
  c->add_flag("--paced", o->paced,
              "one trial per line of standard input, printed as a line of JSON: for programs that interleave "
              "trials of several programs")
      ->excludes(add_json_option(*c, o->json));
  c->add_option("--device", o->device, "cpu, cuda: an NVIDIA GPU, or sim: a dry run; default: cpu");
  c->add_option("--kernels", o->kernels,
                "strict: fast kernels only; any: allow the slow reference; reference; unproven: as any, with "
                "kernels that have not proven themselves on the GPU")
      ->capture_default_str();
  c->allow_extras();
  c->callback([o, c, &code] {
    if (!o->device.empty()) set_compute_device(enum_from<DeviceKind>(o->device, "device"));
    set_kernels(o->kernels);
    const StepBenchPace pace = o->paced ? by_lines() : StepBenchPace{};
    const StepBenchReport report =
        bench_step(preset_recipe(o->step, c->remaining()),
                   o->paced ? std::numeric_limits<int>::max() / 2 : o->trials, o->warm_up, pace);
    if (!o->paced) o->json.print(to_text(report, !o->quiet), to_json(report));
    code = 0;
  });
}

}  // namespace ingot
