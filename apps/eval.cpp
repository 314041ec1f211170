// `ingot eval`: loss and bits per byte of a model on text, with the weights in the form that inference uses.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <optional>

#include "apps/commands.h"
#include "base/file_system.h"
#include "base/progress.h"
#include "data/rows.h"
#include "exchange/stored_model.h"
#include "infer/packed_model.h"
#include "report/run_record.h"
#include "tape/op.h"
#include "train/head_stats.h"
#include "train/prepare.h"

namespace ingot {
namespace {

constexpr int64_t kTokens = 4096;  // per pass over the weights

struct EvalArguments {
  std::string run, checkpoint, tokenizer, weights, kernels = "strict";
  std::vector<std::string> texts;
  int64_t sequence = 0;
};

/// Loss sums over a text, and its bytes per target in the loss.
struct Score {
  HeadStats sums;
  double bytes_per_target = 0;
  std::string line(const std::string& name) const {
    return fmt::format("{}: loss {:.5f}, {:.5f} bits per byte ({} tokens)\n", name, sums.loss(),
                       sums.loss() / std::log(2.0) / bytes_per_target, group_digits(sums.valid));
  }
};

/// Scores the windows that validation during training uses.
Score score_split(const Model& model, std::shared_ptr<const data::TokenSplit> split, int64_t sequence,
                  const data::RowOptions& rows) {
  const data::ValidationPass pass(std::move(split), sequence, rows);
  const int64_t many = std::max<int64_t>(1, kTokens / sequence);
  Score score;
  for (int64_t first = 0; first < pass.windows(); first += many)
    evaluate(model, pass.batch(first, std::min(many, pass.windows() - first)), score.sums);
  score.bytes_per_target = static_cast<double>(pass.text_bytes()) / static_cast<double>(pass.targets());
  return score;
}

/// Scores a file as one document, in consecutive windows.
Score score_file(const Model& model, const Tokenizer& tokenizer, const std::string& path, int64_t sequence) {
  const std::string text = real_file_system().read(path);
  const std::vector<int32_t> ids = tokenizer.encode(text);
  const auto count = static_cast<int64_t>(ids.size());
  if (count < 2)
    throw Error(fmt::format("'{}' has {} tokens", path, count), "give a text of at least two tokens");
  Score score;
  for (int64_t first = 0; first + 1 < count; first += sequence) {
    const int64_t n = std::min(sequence, count - 1 - first);
    data::Batch b;
    b.rows = 1, b.sequence_length = b.valid_targets = n;
    b.tokens.assign(ids.begin() + first, ids.begin() + first + n);
    b.targets.assign(ids.begin() + first + 1, ids.begin() + first + 1 + n);
    for (int32_t t = 0; t < n; ++t) b.positions.push_back(t);
    b.spans = {{0, static_cast<int32_t>(n)}};
    evaluate(model, b, score.sums);
  }
  score.bytes_per_target = static_cast<double>(text.size()) / static_cast<double>(count);
  return score;
}

int eval(const EvalArguments& o) {
  if (o.run.empty() && o.checkpoint.empty())
    throw Error("no model is named", "give --run FOLDER (a run folder) or --checkpoint FOLDER");
  FileSystem& fs = real_file_system();
  set_kernel_policy(enum_from<KernelPolicy>(o.kernels, "kernel policy"));
  const std::string config = o.run + "/" + run_files::kConfig;
  const bool own = o.texts.empty();
  if (own && (o.run.empty() || !fs.exists(config)))
    throw Error("no run is named whose validation text could be read",
                "give --text FILE, or --run with the folder of a run");
  const StoredModel stored = open_stored_model(fs, o.checkpoint.empty() ? o.run : o.checkpoint);
  std::optional<WeightForm> form;
  if (!o.weights.empty()) form = enum_from<WeightForm>(o.weights, "form of weights");
  const PackedModel packed(stored, form);
  const Model& model = packed.model();
  const int64_t most = model.config().context;
  if (o.sequence > most)
    throw Error(fmt::format("windows of {} tokens", o.sequence),
                fmt::format("the model's context is {}", most));
  if (!own) {
    const Tokenizer tokenizer = load_tokenizer(stored, o.tokenizer);
    for (const std::string& path : o.texts)
      std::cout << score_file(model, tokenizer, path, o.sequence > 0 ? o.sequence : most).line(path)
                << std::flush;
    return 0;
  }
  const Recipe recipe = load_recipe(config, {});
  const PreparedData data = open_data(fs, recipe);
  bool any = false;
  for (const data::Dataset& source : data.sources) {
    if (!source.has_split("validation")) continue;
    const int64_t sequence = o.sequence > 0 ? o.sequence : recipe.phases.back().sequence;
    std::cout << score_split(model, source.validation(), sequence, recipe.data.rows()).line(source.name())
              << std::flush;
    any = true;
  }
  if (!any) throw Error(fmt::format("no source of '{}' has a validation split", config), "give --text FILE");
  return 0;
}

}  // namespace

void add_eval_command(CLI::App& app, int& code) {
  auto o = std::make_shared<EvalArguments>();
  CLI::App* c =
      app.add_subcommand("eval", "loss and bits per byte on a run's validation text, or on any text");
  c->add_option("--run", o->run, "run folder, or the folder of an import");
  c->add_option("--checkpoint", o->checkpoint, "one checkpoint instead of the run's newest");
  c->add_option("--tokenizer", o->tokenizer, "tokenizer folder or file, for --text; default: the run's");
  c->add_option("--weights", o->weights, "f32, bf16 or int8; default: as the model was trained");
  c->add_option("--text", o->texts, "files to read instead of the run's validation text, each one document");
  c->add_option("--sequence", o->sequence,
                "tokens per window; default: that of the last phase, or with --text the model's context")
      ->check(CLI::PositiveNumber);
  c->add_option("--kernels", o->kernels, "strict, or any: allow slow reference kernels")
      ->capture_default_str();
  c->callback([o, &code] { code = eval(*o); });
}

}  // namespace ingot
