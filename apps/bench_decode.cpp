// `ingot bench decode MODEL`: speed of prefill and decode, as shares of the fp32 peak and the memory
// bandwidth.
#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/bench.h"
#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/model_argument.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "measure/decode_batch.h"
#include "measure/decode_bench.h"
#include "measure/step_bench.h"

namespace ingot {
namespace {

struct DecodeArguments {
  PresetStep of{.batch = 1};
  DecodeBenchOptions options;
  std::string weights = "f32", checkpoint;  ///< checkpoint: as MODEL was named before
  JsonOption json;
  bool quiet = false;
};

PackedModel opened(const DecodeArguments& o, const std::vector<std::string>& fields) {
  const std::string& stored = o.checkpoint.empty() ? o.of.preset : o.checkpoint;
  if (real_file_system().exists(stored)) {
    if (!fields.empty())
      throw Error(fmt::format("'{}' is set, but the model in '{}' is what it is", fields.front(), stored),
                  "fields of a recipe change presets");
    return PackedModel(open_stored_model(real_file_system(), stored, Verify::structure), o.options.weights);
  }
  return PackedModel(preset_recipe(o.of, fields).model, o.options.weights, 1);
}

}  // namespace

void add_bench_decode(CLI::App& bench, int& code) {
  auto o = std::make_shared<DecodeArguments>();
  CLI::App* c = bench.add_subcommand("decode",
                                     "generation: tokens per second in prefill and decode, share of the fp32 "
                                     "peak and of the memory bandwidth");
  c->footer(
      "Examples:\n"
      "  ingot bench decode zaya-tiny --prompt=16 --new=4 --trials=2 --model.layers=2   # any field can be "
      "set\n"
      "  ingot bench decode zaya-mini --prompt=32 --new=32 --batch=1,16,64\n"
      "Weights of a preset are random. P and the memory bandwidth are measured directly before and after "
      "every trial.");
  c->add_option("model", o->of.preset, fmt::format("preset (`ingot model` lists them), or {}", kModelHelp))
      ->required();
  c->add_option("--weights", o->weights, "f32, bf16 or int8")->capture_default_str();
  c->add_option("--prompt", o->options.prompt, "tokens of the prompt")
      ->check(in(between(1, bounds::kSequence)))
      ->capture_default_str();
  c->add_option("--new", o->options.fresh, "tokens to generate after the prompt")
      ->check(in(between(1, bounds::kSequence)))
      ->capture_default_str();
  c->add_option("--batch", o->options.batch,
                "sequences at a time, as in 1,16,64: rates of prompts and of decoding with sampling instead")
      ->delimiter(',')
      ->check(in(between(1, 4096)));
  c->add_option("--vocab", o->of.vocab, "vocabulary size; default: that of the preset, or 8192")
      ->check(in(between(1, bounds::kVocabulary)));
  c->add_option("--trials", o->options.trials, "number of measured trials")
      ->capture_default_str()
      ->check(in(between(1, 100000)));
  c->add_option("--checkpoint", o->checkpoint, "the same as a MODEL with weights")->group("");
  c->add_flag("--quiet", o->quiet, "omit the tables of ops");
  add_json_option(*c, o->json);
  c->allow_extras();
  c->callback([o, c, &code] {
    o->options.model = o->of.preset;
    o->options.weights = enum_from<WeightForm>(o->weights, "form of weights");
    o->options.ops = !o->quiet;
    const double begin = monotonic_seconds();
    PackedModel model = opened(*o, c->remaining());
    if (!o->options.batch.empty()) {
      const std::vector<BatchRates> rates = bench_batches(model, o->options);
      o->json.print(to_text(rates, o->options), to_json(rates, o->options));
      code = 0;
      return;
    }
    const double load_seconds = monotonic_seconds() - begin;
    DecodeBenchReport report = bench_decode(model, o->options);
    report.load_seconds = load_seconds;
    o->json.print(to_text(report), to_json(report));
    code = 0;
  });
}

}  // namespace ingot
