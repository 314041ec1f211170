// `ingot bench step PRESET`: how fast one training step of a model is, as a share of what the machine can do.
#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/bench.h"
#include "base/file_system.h"
#include "measure/step_bench.h"

namespace ingot {
namespace {

struct StepArguments {
  PresetStep step;
  std::string json;
  int trials = 9, warm_up = 3;
  bool quiet = false;
};

}  // namespace

void add_bench_step(CLI::App& bench, int& code) {
  auto o = std::make_shared<StepArguments>();
  CLI::App* c = bench.add_subcommand("step", "one training step of a model: tokens per second, share of the fp32 peak, time by op");
  c->footer(
      "Any field of a recipe can be set too:  ingot bench step gpt-10m --model.mlp=gelu --optimizer.matrices=adamw\n"
      "The fp32 peak is measured directly before and after every trial.");
  c->add_option("preset", o->step.preset, "preset of the model; `ingot model` lists them")->required();
  c->add_option("--batch", o->step.batch, "sequences per step")->capture_default_str();
  c->add_option("--length", o->step.length, "tokens per sequence")->capture_default_str();
  c->add_option("--micro", o->step.micro, "sequences per forward; 0: all")->capture_default_str();
  c->add_option("--vocab", o->step.vocab, "vocabulary; default: the preset's, or 8192");
  c->add_option("--trials", o->trials, "steps that count")->capture_default_str()->check(CLI::Range(1, 100000));
  c->add_option("--warm-up", o->warm_up, "steps before that do not")->capture_default_str()->check(CLI::Range(0, 100000));
  c->add_flag("--bf16", o->step.bf16, "bf16 operands, fp32 sums and masters");
  c->add_flag("--quiet", o->quiet, "without the table of ops");
  c->add_option("--json", o->json, "write the numbers to this file too");
  c->allow_extras();
  c->callback([o, c, &code] {
    const StepBenchReport report = bench_step(preset_recipe(o->step, c->remaining()), o->trials, o->warm_up);
    std::cout << to_text(report, !o->quiet);
    if (!o->json.empty()) write_file_atomically(real_file_system(), o->json, to_json(report));
    code = 0;
  });
}

}  // namespace ingot
