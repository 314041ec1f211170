// `ingot pairs`: rows of preferences that a model makes with a verifier, for phases of kind "preference".
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/inference.h"
#include "apps/text_io.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/log.h"
#include "environments/environment.h"
#include "eval/engine_model.h"
#include "post/preference/make_pairs.h"

namespace ingot {
namespace {

struct PairArguments {
  InferenceArguments model;
  PairOptions pairs;
  std::string weak, thinking = "default", output;
  int64_t difficulty = -1, hardest = -1, seed = 0;
};

std::unique_ptr<EngineModel> answering(const Session& s) {
  if (!s.chat_template)
    throw Error(fmt::format("the model '{}' has no chat template, in which it would answer", s.path),
                "name one with --chat-template");
  return std::make_unique<EngineModel>(s.model.model(), s.tokenizer,
                                       EngineModelOptions{.control = s.control, .chat = s.chat_template});
}

int pairs(PairArguments& o) {
  FileSystem& fs = real_file_system();
  PairOptions& p = o.pairs;
  if (o.weak.empty() && p.sampling.samples < 2)
    throw UsageError("one answer to a problem makes no pair", "give --samples 2 or more, or --weak MODEL");
  const environments::DifficultyRange range = environments::find_environment(p.environment)->difficulty();
  p.easiest = o.difficulty < 0 ? range.least : o.difficulty;
  p.hardest = o.hardest < 0 ? std::max(p.easiest, o.difficulty < 0 ? range.most : o.difficulty) : o.hardest;
  p.seed = static_cast<uint64_t>(o.seed);
  p.thinking = enum_from<ThinkingMode>(o.thinking, "--thinking");
  const Session session = open_session(o.model);
  const std::unique_ptr<EngineModel> model = answering(session);
  std::optional<Session> weak_session;
  std::unique_ptr<EngineModel> weak;
  if (!o.weak.empty()) {
    InferenceArguments arguments = o.model;
    arguments.model = {.model = o.weak, .run = {}, .checkpoint = {}};
    weak_session.emplace(open_session(arguments));
    weak = answering(*weak_session);
  }
  std::string rows;
  const PairReport r = make_pairs(*model, weak.get(), p, [&](const std::string& row) { rows += row + "\n"; });
  if (o.output.empty())
    print_text(rows);
  else
    write_file_atomically(fs, o.output, rows);
  const std::string report = fmt::format(
      "{} pairs of {} problems; mean reward {:.3f}; {} problems without a difference, {} answers cut{}",
      r.pairs, r.problems, r.reward, r.all_equal, r.cut,
      r.not_judged > 0 ? fmt::format(", {} not judged", r.not_judged) : "");
  if (o.output.empty())
    log::info("{}", report);
  else
    print_text(report + "\n");
  if (r.pairs == 0)
    throw Error("no pair was made: " + report,
                "take problems that the model solves sometimes (--difficulty), more --samples or a higher "
                "--temperature");
  return 0;
}

}  // namespace

void add_pairs_command(CLI::App& app, int& code) {
  auto o = std::make_shared<PairArguments>();
  PairOptions& p = o->pairs;
  p.sampling.samples = 4;
  p.sampling.temperature = 1;
  CLI::App* c = app.add_subcommand("pairs", "make preference pairs with a model and a verifier");
  c->footer(
      "The best of several answers to a problem against the worst, as rows for `ingot finetune` and phases "
      "of\n"
      "kind preference. A partition is --first and --count.\n"
      "Examples:\n"
      "  ingot pairs runs/sft --environment sort --difficulty 4 --count 500 -o pairs.jsonl\n"
      "  ingot pairs runs/large --weak runs/small --environment sort -o pairs.jsonl");
  add_model_options(c, o->model);
  add_chat_template_option(c, o->model);
  c->add_option("--environment", p.environment, "whose problems (`ingot environment list`)")->required();
  c->add_option("--difficulty", o->difficulty,
                "of the problems, the easiest; default: all of the environment's")
      ->check(in(up_to(1e9)));
  c->add_option("--hardest", o->hardest, "the hardest difficulty; default: the easiest")
      ->check(in(up_to(1e9)));
  c->add_option("--first", p.first, "number of the first problem")
      ->check(in(up_to(1e15)))
      ->capture_default_str();
  c->add_option("--count", p.count, "problems")->check(in(between(1, 1e9)))->capture_default_str();
  c->add_option("--problem-seed", o->seed, "seed of the problems")
      ->check(in(up_to(0x1p31)))
      ->capture_default_str();
  c->add_option("--samples", p.sampling.samples, "answers to each problem")
      ->check(in(between(1, 10000)))
      ->capture_default_str();
  c->add_option("--temperature", p.sampling.temperature, "of the answers")
      ->check(in(up_to(1e6)))
      ->capture_default_str();
  c->add_option("--tokens", p.sampling.max_tokens, "of an answer at most; longer ones are left out")
      ->check(in(between(1, 0x1p24)))
      ->capture_default_str();
  c->add_option("--seed", p.sampling.seed, "of the random numbers")
      ->check(in(up_to(0x1p53)))
      ->capture_default_str();
  c->add_option("--thinking", o->thinking, "default, on or off")->capture_default_str();
  c->add_option("--weak", o->weak, "a weaker model, whose answers are rejected: " + std::string(kModelHelp));
  c->add_option("-o,--output", o->output, "file of the rows; default: standard output");
  c->callback([o, &code] { code = pairs(*o); });
}

}  // namespace ingot
