// `ingot bench step PRESET`: how fast one training step of a model is, as a share of what the machine can do.
#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/bench.h"
#include "base/file_system.h"
#include "measure/step_bench.h"

namespace ingot {
namespace {

struct StepArguments {
  std::string preset, json;
  int64_t batch = 12, length = 256, micro = 0, vocab = 0;
  int trials = 9, warm_up = 3;
  bool bf16 = false, quiet = false;
};

/// Text that is never read: rows are random tokens.
Recipe recipe_of(const StepArguments& o, const std::vector<std::string>& more) {
  std::vector<std::string> fields{"--data.sources.0.name=random",
                                  "--data.sources.0.path=random",
                                  "--model.preset=" + o.preset,
                                  fmt::format("--stages.0.batch={}", o.batch),
                                  fmt::format("--stages.0.micro_batch={}", o.micro),
                                  fmt::format("--stages.0.sequence={}", o.length)};
  if (o.vocab > 0) fields.push_back(fmt::format("--model.vocab={}", o.vocab));
  else if (const ModelConfig preset = model_preset(o.preset); preset.vocab == 0) fields.push_back("--model.vocab=8192");
  if (o.bf16) fields.push_back("--run.precision=bf16");
  fields.insert(fields.end(), more.begin(), more.end());
  return load_recipe("", fields);
}

}  // namespace

void add_bench_step(CLI::App& bench, int& code) {
  auto o = std::make_shared<StepArguments>();
  CLI::App* c = bench.add_subcommand("step", "one training step of a model: tokens per second, share of the fp32 peak, time by op");
  c->footer(
      "Any field of a recipe can be set too:  ingot bench step gpt-10m --model.mlp=gelu --optimizer.matrices=adamw\n"
      "The fp32 peak is measured directly before and after every trial.");
  c->add_option("preset", o->preset, "preset of the model; `ingot model` lists them")->required();
  c->add_option("--batch", o->batch, "sequences per step")->capture_default_str();
  c->add_option("--length", o->length, "tokens per sequence")->capture_default_str();
  c->add_option("--micro", o->micro, "sequences per forward; 0: all")->capture_default_str();
  c->add_option("--vocab", o->vocab, "vocabulary; default: the preset's, or 8192");
  c->add_option("--trials", o->trials, "steps that count")->capture_default_str()->check(CLI::Range(1, 100000));
  c->add_option("--warm-up", o->warm_up, "steps before that do not")->capture_default_str()->check(CLI::Range(0, 100000));
  c->add_flag("--bf16", o->bf16, "bf16 operands, fp32 sums and masters");
  c->add_flag("--quiet", o->quiet, "without the table of ops");
  c->add_option("--json", o->json, "write the numbers to this file too");
  c->allow_extras();
  c->callback([o, c, &code] {
    const StepBenchReport report = bench_step(recipe_of(*o, c->remaining()), o->trials, o->warm_up);
    std::cout << to_text(report, !o->quiet);
    if (!o->json.empty()) write_file_atomically(real_file_system(), o->json, to_json(report));
    code = 0;
  });
}

}  // namespace ingot
