// `ingot generate`: continues a prompt with a model, as text or as JSON.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/command_line.h"
#include "apps/inference.h"
#include "apps/text_io.h"
#include "base/error.h"
#include "base/log.h"
#include "base/terminal_text.h"
#include "infer/stop_strings.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

struct GenerateArguments : InferenceArguments {
  std::string prompt = "The ", prompt_file;
  std::vector<std::string> stop;
  int64_t samples = 1, logprobs = -1;
  bool quiet = false;
  JsonOption json;
};

std::string prompt_of(const GenerateArguments& o) {
  const std::string file = !o.prompt_file.empty() ? o.prompt_file : o.prompt == "-" ? "-" : "";
  if (file.empty()) return o.prompt;
  std::string text = read_text_input(file);
  drop_last_newline(text);
  return text;
}

const char* reason_name(EndReason reason, bool stopped) {
  if (stopped) return "stop";
  switch (reason) {
    case EndReason::stop_id:
      return "end_token";
    case EndReason::max_tokens:
      return "max_tokens";
    case EndReason::context:
      return "context";
    case EndReason::caller:
      return "stop";
  }
  return "";
}

/// One continuation, made while it is shown.
class ShownSample {
 public:
  ShownSample(const Session& s, const GenerateArguments& o)
      : session_(s), o_(o), decoder_(s.tokenizer), stop_(o.stop) {}

  void generate(Generator& generator, SequenceState& sequence, std::span<const int32_t> prompt,
                uint64_t stream) {
    GenerateOptions options = session_.generate;
    options.stream = stream;
    if (o_.logprobs >= 0)
      options.on_draw = [&](std::span<const float> logits, int32_t id) {
        draws_.push_back(log_probabilities(logits, id, o_.logprobs));
      };
    made_ = generator.generate(sequence, prompt, options, [&](int32_t id) {
      show(stop_.push(decoder_.push(id)));
      return !stop_.found();
    });
    show(stop_.push(decoder_.finish()));
    show(stop_.finish());
  }
  void show_end() const {
    std::cout << "\n";
    for (const auto& draw : draws_) {
      std::cout << fmt::format("{}\t{}\t{:.6f}", draw[0].id, text_of(draw[0].id), draw[0].logprob);
      for (size_t i = 1; i < draw.size(); ++i)
        std::cout << fmt::format("\t{} {} {:.6f}", draw[i].id, text_of(draw[i].id), draw[i].logprob);
      std::cout << "\n";
    }
    std::cout << std::flush;
    if (made_.reason == EndReason::context)
      log::info("(the model's context of {} tokens is full)", session_.model.model().config().context);
  }
  Json json() const {
    Json all = {{"text", text_}, {"ended_by", reason_name(made_.reason, stop_.found())}, {"ids", made_.ids}};
    const auto one = [&](const TokenProbability& t) {
      return Json{{"id", t.id}, {"text", session_.tokenizer.decode({&t.id, 1})}, {"logprob", t.logprob}};
    };
    if (o_.logprobs < 0) return all;
    all["logprobs"] = Json::array();
    for (const auto& draw : draws_) {
      Json token = one(draw[0]);
      token["top"] = Json::array();
      for (size_t i = 1; i < draw.size(); ++i) token["top"].push_back(one(draw[i]));
      all["logprobs"].push_back(std::move(token));
    }
    return all;
  }

 private:
  void show(const std::string& text) {
    text_ += text;
    if (!o_.json.alone()) std::cout << text_for(STDOUT_FILENO, text) << std::flush;
  }
  /// A token on a line of its own: quoted, control characters escaped.
  std::string text_of(int32_t id) const {
    return terminal_text(json_text(session_.tokenizer.decode({&id, 1})));
  }

  const Session& session_;
  const GenerateArguments& o_;
  StreamDecoder decoder_;
  StopStrings stop_;
  Continuation made_;
  std::string text_;
  std::vector<std::vector<TokenProbability>> draws_;
};

/// All of the prompt but its last token, which each sample appends by itself.
SequenceState shared_prompt(Generator& generator, const GenerateOptions& o, std::span<const int32_t> ids) {
  SequenceState sequence = generator.new_sequence();
  SequenceState* const one[] = {&sequence};
  for (size_t at = 0; at + 1 < ids.size();) {
    const auto piece = ids.subspan(at, std::min(ids.size() - 1 - at, static_cast<size_t>(o.prefill_chunk)));
    generator.extend(one, std::span(&piece, 1));
    at += piece.size();
  }
  return sequence;
}

int generate(const GenerateArguments& o) {
  if (!o.prompt_file.empty() && o.prompt != GenerateArguments{}.prompt)
    throw Error("--prompt and --prompt-file are both given", "give one of the two");
  const StopStrings checked(o.stop);
  const std::string prompt = prompt_of(o);
  const Session s = open_session(o);
  SpelledSpecials spelled;
  const std::vector<int32_t> ids = s.encode(prompt, true, spelled);
  if (const std::string w = spelled.warning(s.tokenizer, "the prompt", "--special"); !w.empty())
    log::warn("{}", w);
  if (ids.empty())
    throw Error("the prompt is empty, and the model has no token that begins a text",
                "give --prompt \"some text\"");
  const int64_t context = s.model.model().config().context;
  if (static_cast<int64_t>(ids.size()) > context)
    throw Error(fmt::format("the prompt has {} tokens, but the model's context is {}", ids.size(), context),
                "give a shorter prompt");
  Generator generator = s.generator();
  SequenceState start = o.samples > 1 ? shared_prompt(generator, s.generate, ids) : generator.new_sequence();
  const auto rest = std::span(ids).subspan(static_cast<size_t>(start.tokens()));
  Json samples = Json::array();
  for (int64_t i = 0; i < o.samples; ++i) {
    if (!o.json.alone() && o.samples > 1)
      std::cout << fmt::format("{}== sample {} of {}\n", i > 0 ? "\n" : "", i + 1, o.samples);
    if (!o.json.alone() && !o.quiet) std::cout << text_for(STDOUT_FILENO, prompt);
    SequenceState sequence = start.fork();
    ShownSample sample(s, o);
    sample.generate(generator, sequence, rest, static_cast<uint64_t>(i));
    if (!o.json.alone()) sample.show_end();
    samples.push_back(sample.json());
  }
  Json all = {{"model", s.path}};
  if (!o.rope_scaling.empty()) all["rope_scaling"] = o.rope_scaling;
  all.update(control_json(s.tokenizer, s.control, s.special));
  all["seed"] = o.seed;
  all["prompt"] = prompt;
  all["prompt_ids"] = ids;
  all["samples"] = std::move(samples);
  o.json.print("", json_text(all, 2));
  return 0;
}

}  // namespace

void add_generate_command(CLI::App& app, int& code) {
  auto o = std::make_shared<GenerateArguments>();
  CLI::App* c = app.add_subcommand("generate", "continue a prompt");
  add_inference_options(c, *o);
  c->add_option("--prompt", o->prompt, "text to continue; -: standard input")->capture_default_str();
  c->add_option("--prompt-file", o->prompt_file,
                "file with the text to continue (-: standard input); a newline at its end is dropped");
  c->add_option("--stop", o->stop, "end before this text; may be repeated")->allow_extra_args(false);
  c->add_option("-n,--samples", o->samples, "number of independent continuations")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  c->add_option("--logprobs", o->logprobs,
                "print the log-probability of each new token, and of the K most likely ones in its place")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  c->add_flag("--quiet", o->quiet, "print the continuation only");
  add_json_option(*c, o->json);
  c->callback([o, &code] { code = generate(*o); });
}

}  // namespace ingot
