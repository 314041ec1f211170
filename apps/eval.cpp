// `ingot eval`: loss and bits per byte of a model on text, with the weights in the form that inference uses.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/eval_tasks.h"
#include "apps/inference.h"
#include "apps/text_io.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/progress.h"
#include "data/rows.h"
#include "exchange/control_tokens.h"
#include "infer/packed_model.h"
#include "tape/op.h"
#include "train/head_stats.h"
#include "train/run_folder.h"

namespace ingot {
namespace {

constexpr int64_t kTokens = 4096;  // per pass over the weights

struct EvalArguments {
  ModelArgument model;
  std::string tokenizer, weights, rope_scaling, kernels = "strict";
  std::vector<std::string> texts;
  int64_t sequence = 0;
  bool special = false, no_begin = false;
  JsonOption json;
  TaskArguments task;
};

/// Loss sums over a text, and its bytes per target in the loss.
struct Score {
  std::string name;
  HeadStats sums;
  double bytes_per_target = 0;
  double bits_per_byte() const { return sums.loss() / std::log(2.0) / bytes_per_target; }
  std::string line() const {
    return fmt::format("{}: loss {:.5f}, {:.5f} bits per byte, perplexity {:.5g} ({} tokens)\n", name,
                       sums.loss(), bits_per_byte(), std::exp(sums.loss()), group_digits(sums.valid));
  }
  nlohmann::ordered_json json() const {
    return {{"name", name},
            {"loss", sums.loss()},
            {"bits_per_byte", bits_per_byte()},
            {"perplexity", std::exp(sums.loss())},
            {"tokens", sums.valid}};
  }
  void require_finite() const {
    if (std::isfinite(sums.nll)) return;
    throw Error(fmt::format("the loss on '{}' is {}", name, sums.nll),
                "the weights have diverged or overflow in this precision: give an older checkpoint, or "
                "--weights f32");
  }
};

/// Shows scores as they come: a line each, or one JSON object at the end.
class Scores {
 public:
  explicit Scores(JsonOption json) : json_(std::move(json)) {}
  void add(const Score& score) {
    score.require_finite();
    if (!json_.alone()) print_text(score.line());
    all_.push_back(score.json());
  }
  void finish(nlohmann::ordered_json about) const {
    about["results"] = all_;
    json_.print("", json_text(about, 2));
  }

 private:
  JsonOption json_;
  nlohmann::ordered_json all_ = nlohmann::ordered_json::array();
};

/// Scores the windows that validation during training uses.
Score score_split(const Model& model, const std::shared_ptr<const data::TokenSplit>& split, int64_t sequence,
                  const data::RowOptions& rows) {
  const data::ValidationPass pass(split, sequence, rows);
  const int64_t many = std::max<int64_t>(1, kTokens / sequence);
  Score score{split->source(), {}, 0};
  for (int64_t first = 0; first < pass.windows(); first += many)
    evaluate(model, pass.batch(first, std::min(many, pass.windows() - first)), score.sums);
  score.bytes_per_target = static_cast<double>(pass.text_bytes()) / static_cast<double>(pass.targets());
  return score;
}

/// A text as ids, and the token that every window of it begins with.
struct Encoded {
  std::string name;
  size_t bytes = 0;
  std::vector<int32_t> ids;
  std::optional<int32_t> begin;
};

Encoded encode_text(const EvalArguments& o, const Tokenizer& tokenizer, const std::string& path,
                    std::optional<int32_t> begin) {
  const std::string text = read_text_input(path);
  Encoded e{path == "-" ? "standard input" : path, text.size(), {}, begin};
  SpelledSpecials spelled;
  tokenizer.encode_to(text, {.parse_special = o.special, .spelled = &spelled}, e.ids);
  if (const std::string w = spelled.warning(tokenizer, "'" + e.name + "'", "--special"); !w.empty())
    log::warn("{}", w);
  const size_t least = begin ? 1 : 2;
  if (e.ids.size() < least)
    throw Error(fmt::format("'{}' has {} tokens", e.name, e.ids.size()),
                fmt::format("give a text of at least {} tokens", least));
  return e;
}

/// Scores a text as one document, in consecutive windows. Each begins with the begin token, where there is
/// one, and then every token of the text is a target; else all but the first are.
Score score_text(const Model& model, const Encoded& text, int64_t sequence) {
  std::vector<int32_t> ids = text.ids;
  if (text.begin) ids.insert(ids.begin(), *text.begin);
  const auto count = static_cast<int64_t>(ids.size());
  Score score{text.name, {}, 0};
  for (int64_t first = 0; first + 1 < count; first += sequence) {
    const int64_t n = std::min(sequence, count - 1 - first);
    data::Batch b;
    b.rows = 1, b.sequence_length = b.valid_targets = n;
    b.tokens.assign(ids.begin() + first, ids.begin() + first + n);
    if (text.begin) b.tokens.front() = *text.begin;
    b.targets.assign(ids.begin() + first + 1, ids.begin() + first + 1 + n);
    for (int32_t t = 0; t < n; ++t) b.positions.push_back(t);
    b.spans = {{0, static_cast<int32_t>(n)}};
    evaluate(model, b, score.sums);
  }
  score.bytes_per_target = static_cast<double>(text.bytes) / static_cast<double>(text.ids.size());
  return score;
}

void score_texts(const EvalArguments& o, const StoredModel& stored, const Model& model, Scores& scores,
                 nlohmann::ordered_json& about) {
  const Tokenizer tokenizer = load_tokenizer(stored, o.tokenizer);
  ControlTokens control = control_tokens(real_file_system(), stored, tokenizer);
  if (o.no_begin) control.begin.reset();
  about.update(control_json(tokenizer, control, o.special));
  for (const std::string& path : o.texts)
    scores.add(score_text(model, encode_text(o, tokenizer, path, control.begin),
                          o.sequence > 0 ? o.sequence : model.config().context));
}

void score_own_text(const EvalArguments& o, const std::string& run, const Model& model, Scores& scores) {
  const Recipe recipe = load_run(real_file_system(), run, {});
  const PreparedData data = open_validation_data(real_file_system(), recipe);
  bool any = false;
  for (const data::Dataset& source : data.sources) {
    if (!source.has_split("validation")) continue;
    const int64_t sequence = o.sequence > 0 ? o.sequence : recipe.phases.back().sequence;
    scores.add(score_split(model, source.validation(), sequence, recipe.data.rows()));
    any = true;
  }
  if (!any) throw Error(fmt::format("no source of '{}' has a validation split", run), "give --text FILE");
}

int eval(const EvalArguments& o) {
  if (o.task.list) return list_tasks(o.task), 0;
  if (!o.task.harness.empty()) {
    if (o.task.tasks.empty()) throw UsageError("no tasks are named", "give --tasks a,b");
    return export_tasks(o.task), 0;
  }
  if (!o.texts.empty() && !o.task.tasks.empty())
    throw UsageError("--text and --tasks are named", "give one of the two");
  const std::string path = o.model.path();
  set_kernel_policy(enum_from<KernelPolicy>(o.kernels, "kernel policy"));
  const StoredModel stored = open_model(path, o.rope_scaling);
  const std::string run = !o.model.checkpoint.empty() && !o.model.run.empty() ? o.model.run : stored.folder;
  if (o.texts.empty() && o.task.tasks.empty() && (run.empty() || stored.imported))
    throw Error(fmt::format("no run is named whose validation text could be read: '{}' belongs to none",
                            stored.reader.path()),
                "give --text FILE, or the folder of a run");
  std::optional<WeightForm> form;
  if (!o.weights.empty()) form = enum_from<WeightForm>(o.weights, "form of weights");
  const PackedModel packed(stored, form);
  const Model& model = packed.model();
  if (model.config().moe.sees_future_tokens())
    log::warn(
        "moe.selection = expert_choice: a token's experts depend on later tokens, so the losses below are "
        "lower than a causal model's");
  if (o.sequence > model.config().context)
    throw Error(fmt::format("windows of {} tokens", o.sequence),
                fmt::format("the model's context is {}", model.config().context));
  if (!o.task.tasks.empty()) return eval_tasks(o.task, stored, packed, o.tokenizer, o.no_begin, o.json), 0;
  Scores scores(o.json);
  nlohmann::ordered_json about = {{"model", stored.reader.path()}};
  if (!o.rope_scaling.empty()) about["rope_scaling"] = o.rope_scaling;
  if (o.texts.empty())
    score_own_text(o, run, model, scores);
  else
    score_texts(o, stored, model, scores, about);
  scores.finish(std::move(about));
  return 0;
}

}  // namespace

void add_eval_command(CLI::App& app, int& code) {
  auto o = std::make_shared<EvalArguments>();
  CLI::App* c = app.add_subcommand(
      "eval", "loss and bits per byte on a run's validation text or any text; tasks and their scores");
  add_model_argument(*c, o->model);
  c->add_option("--tokenizer", o->tokenizer, "tokenizer folder or file, for --text; default: the run's");
  c->add_option("--weights", o->weights, "f32, bf16 or int8; default: as the model was trained");
  add_rope_scaling_option(c, o->rope_scaling);
  c->add_option("--text", o->texts,
                "files to read instead of the run's validation text (-: standard input), each one document");
  c->add_option("--sequence", o->sequence,
                "tokens per window; default: that of the last phase, or with --text the model's context")
      ->check(in(between(1, bounds::kSequence)));
  c->add_flag("--special", o->special,
              "special tokens that a --text spells become tokens; default: plain text");
  c->add_flag("--no-begin-token", o->no_begin,
              "with --text: leave out the token that the model's texts begin with");
  c->add_option(
      "--tasks", o->task.tasks,
      "tasks to run instead, as a,b: names, paths of task files, or problems of an environment, as sort@3-8");
  c->add_option("--tasks-folder", o->task.folder, "where tasks are looked for by name; default: tasks");
  c->add_option("--task-data", o->task.data, "folder in which the tasks' rows are looked for first");
  c->add_option("--limit", o->task.limit, "the first so many rows of each task only")
      ->check(in(between(1, 0x1p40, "rows")));
  c->add_option("--chat-template", o->task.chat_template,
                "of tasks that are conversations: a .jinja file, or chatml-think; default: the model's");
  c->add_option(
      "--method", o->task.method,
      "of conversations: majority (of --population samples) or rsa (Markovian RSA); default: neither");
  add_rsa_options(*c, o->task.rsa, o->task.compaction);
  c->add_option("--output", o->task.output,
                "folder for results and samples as lm-evaluation-harness writes them");
  c->add_option(
      "--export-harness", o->task.harness,
      "write the --tasks to this folder for lm-evaluation-harness's --include_path; needs no model");
  c->add_flag("--list-tasks", o->task.list, "what tasks there are; needs no model");
  add_json_option(*c, o->json);
  c->add_option("--kernels", o->kernels, "strict, or any: allow slow reference kernels")
      ->capture_default_str();
  add_eval_tools(*c, code);
  c->callback([o, c, &code] {
    for (const char* name : {"--population", "--candidates", "--rounds", "--budget", "--tail",
                             "--answer-tokens", "--compaction"})
      if (c->count(name) > 0 && o->task.method.empty())
        throw UsageError(fmt::format("{} is given without --method", name), "add --method majority or rsa");
    if (c->get_subcommands().empty()) code = eval(*o);
  });
}

}  // namespace ingot
