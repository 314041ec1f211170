// `ingot average` and `ingot upcycle`: make a model from others without training.
#include "exchange/derive.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/model_argument.h"
#include "apps/text_io.h"

namespace ingot {
namespace {

void print_created(const std::string& checkpoint, const std::string& out, const JsonOption& json) {
  json.print(checkpoint + "\n" + next_command(out), json_text({{"checkpoint", checkpoint}, {"out", out}}, 2));
}

struct AverageCommand {
  std::vector<std::string> models;
  std::string out;
  std::vector<double> weights;
  std::optional<double> ema;
  int64_t last = 0;
  JsonOption json;
};

int average(const AverageCommand& o) {
  FileSystem& fs = real_file_system();
  std::vector<std::string> models = o.models;
  if (o.last != 0) {
    if (models.size() != 1) throw Error("--last takes the checkpoints of one run", "name one run folder");
    models = last_checkpoints(fs, models.front(), o.last);
  }
  if (o.ema && !o.weights.empty())
    throw Error("--ema and --weights both set the weight of each model", "give one of them");
  print_created(
      average_models(fs, models, o.ema ? moving_average_weights(models.size(), *o.ema) : o.weights, o.out),
      o.out, o.json);
  return 0;
}

struct UpcycleCommand {
  std::string dense, out;
  UpcycleOptions options;
  uint64_t seed = 1;
  JsonOption json;
};

int upcycle(const UpcycleCommand& o) {
  print_created(upcycle_model(real_file_system(), o.dense, o.options, o.seed, o.out), o.out, o.json);
  return 0;
}

}  // namespace

void add_derive_commands(CLI::App& app, int& code) {
  auto a = std::make_shared<AverageCommand>();
  CLI::App* c = app.add_subcommand("average", "average the weights of several models");
  c->add_option("models", a->models, fmt::format("models, each a {}; with --last one run folder", kModelHelp))
      ->required();
  c->add_option("-o,--out", a->out, "new folder")->required();
  c->add_option("--weights", a->weights, "weight of each model, e.g. 1,2,3; default: equal")
      ->check(in(positive(bounds::kWeight)))
      ->delimiter(',');
  c->add_option("--ema", a->ema, "exponential moving average over the models in order, with this decay")
      ->check(in(below_one()));
  c->add_option("--last", a->last, "the last N checkpoints of the run, oldest first")
      ->check(in(between(1, 1e6)));
  add_json_option(*c, a->json);
  c->footer("Examples:\n  ingot average runs/first imported -o mean");
  c->callback([a, &code] { code = average(*a); });
  auto u = std::make_shared<UpcycleCommand>();
  c = app.add_subcommand("upcycle",
                         "turn a dense model into a mixture of experts that computes the same function");
  c->add_option("model", u->dense, fmt::format("dense model: {}", kModelHelp))->required();
  c->add_option("out", u->out, "new folder")->required();
  c->add_option("--granularity", u->options.granularity, "number of experts that each MLP is split into")
      ->check(in(between(1, bounds::kExperts)))
      ->capture_default_str();
  c->add_option("--expansion", u->options.expansion,
                "copies of each of them: granularity x expansion experts")
      ->check(in(between(1, bounds::kExperts)))
      ->capture_default_str();
  c->add_option("--top-k", u->options.top_k, "experts per token, a multiple of granularity")
      ->check(in(between(1, bounds::kExperts)))
      ->capture_default_str();
  c->add_option("--seed", u->seed, "seed of the routers' initial weights")
      ->check(in(between(0, 0x1p63)))
      ->capture_default_str();
  add_json_option(*c, u->json);
  c->callback([u, &code] { code = upcycle(*u); });
}

}  // namespace ingot
