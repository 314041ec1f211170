// `ingot bench ops PRESET`: each op of a training step alone, against its roofline.
#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/bench.h"
#include "apps/checks.h"
#include "apps/command_line.h"
#include "base/file_system.h"
#include "measure/ops_bench.h"
#include "measure/step_bench.h"

namespace ingot {
namespace {

struct OpsArguments {
  PresetStep step;
  OpsBenchOptions bench;
  JsonOption json;
};

}  // namespace

void add_bench_ops(CLI::App& bench, int& code) {
  auto o = std::make_shared<OpsArguments>();
  o->step.batch = 4;
  CLI::App* c = bench.add_subcommand("ops", "each op of a training step alone: percent of roofline");
  c->footer(
      "Examples:\n"
      "  ingot bench ops zaya-tiny --length=64 --trials=2 --seconds=0.001 --op=linear\n"
      "  ingot bench ops zaya-tiny --length=64 --trials=2 --seconds=0.001 --run.precision=bf16   # any field "
      "can be set");
  c->add_option("preset", o->step.preset, "preset of the model; `ingot model` lists them")->required();
  c->add_option("--batch", o->step.batch, "sequences per step")
      ->check(in(between(1, bounds::kBatch)))
      ->capture_default_str();
  c->add_option("--length", o->step.length, "tokens per sequence")
      ->check(in(between(1, bounds::kSequence)))
      ->capture_default_str();
  c->add_option("--vocab", o->step.vocab, "vocabulary size; default: that of the preset, or 8192")
      ->check(in(between(1, bounds::kVocabulary)));
  c->add_flag("--bf16", o->step.bf16, "bf16 operands, fp32 accumulation and master weights");
  c->add_option("--op", o->bench.only, "only these ops; `ingot kernels` lists them")->delimiter(',');
  c->add_option("--trials", o->bench.trials, "number of trials")
      ->capture_default_str()
      ->check(in(between(1, 1000)));
  c->add_option("--seconds", o->bench.seconds, "minimum seconds of a trial")
      ->capture_default_str()
      ->check(in(positive(1e6)));
  c->add_flag("--reference", o->bench.reference, "also time the reference kernels (slow)");
  c->add_flag("--cold", o->bench.cold, "empty the caches before each call; a trial is one call")
      ->excludes("--seconds");
  add_json_option(*c, o->json);
  c->allow_extras();
  c->callback([o, c, &code] {
    const OpsBenchReport report = bench_ops(preset_recipe(o->step, c->remaining()), o->bench);
    o->json.print(to_text(report), to_json(report));
    code = 0;
  });
}

}  // namespace ingot
