// `ingot generate`: continues a prompt with a model, as text or as JSON.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/checks.h"
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

/// Samples while they are made; the first that has not ended is shown as it grows, the others wait.
class ShownSamples {
 public:
  ShownSamples(const Session& s, const GenerateArguments& o, const std::string& prompt)
      : session_(s), o_(o), prompt_(prompt), samples_(static_cast<size_t>(o.samples)) {}

  Sink sink() {
    return {.token =
                [this](const TokenEvent& e) {
                  Sample& s = samples_[static_cast<size_t>(e.sample)];
                  if (e.stop) return;
                  s.ids.push_back(e.id);
                  s.text += e.text;
                  if (o_.logprobs >= 0) s.draws.push_back({{e.id, e.logprob}, {e.top.begin(), e.top.end()}});
                  show();
                },
            .finished =
                [this](const Finished& f) {
                  Sample& s = samples_[static_cast<size_t>(f.sample)];
                  s.text += f.text;
                  s.end = f;
                  if (f.reason == FinishReason::failed && !error_) error_ = Error(f.error, f.hint);
                  show();
                }};
  }
  void rethrow() const {
    if (error_) throw *error_;
  }
  Json json() const {
    Json all = Json::array();
    for (const Sample& s : samples_) all.push_back(json_of(s));
    return all;
  }

 private:
  struct Draw {
    TokenProbability token;
    std::vector<TokenProbability> top;
  };
  struct Sample {
    std::string text;
    std::vector<int32_t> ids;
    std::vector<Draw> draws;
    std::optional<Finished> end;
    size_t shown = 0;  ///< bytes of the text
    bool begun = false;
  };

  void show() {
    for (; !o_.json.alone() && current_ < samples_.size(); ++current_) {
      Sample& s = samples_[current_];
      if (!s.begun && s.ids.empty() && !s.end) return;
      if (!s.begun) show_begin();
      s.begun = true;
      std::cout << text_for(STDOUT_FILENO, s.text.substr(s.shown)) << std::flush;
      s.shown = s.text.size();
      if (!s.end) return;
      if (s.end->reason != FinishReason::failed) show_end(s);
    }
  }
  void show_begin() const {
    if (o_.samples > 1)
      std::cout << fmt::format("{}== sample {} of {}\n", current_ > 0 ? "\n" : "", current_ + 1, o_.samples);
    if (!o_.quiet) std::cout << text_for(STDOUT_FILENO, prompt_);
  }
  void show_end(const Sample& s) const {
    std::cout << "\n";
    for (const Draw& draw : s.draws) {
      std::cout << fmt::format("{}\t{}\t{:.6f}", draw.token.id, text_of(draw.token.id), draw.token.logprob);
      for (const TokenProbability& t : draw.top)
        std::cout << fmt::format("\t{} {} {:.6f}", t.id, text_of(t.id), t.logprob);
      std::cout << "\n";
    }
    std::cout << std::flush;
    if (s.end->reason == FinishReason::context)
      log::info("(the model's context of {} tokens is full)", session_.model.model().config().context);
  }
  Json json_of(const Sample& s) const {
    Json all = {{"text", s.text}, {"ended_by", name_of(s.end->reason)}, {"ids", s.ids}};
    const auto one = [&](const TokenProbability& t) {
      return Json{{"id", t.id}, {"text", session_.tokenizer.decode({&t.id, 1})}, {"logprob", t.logprob}};
    };
    if (o_.logprobs < 0) return all;
    all["logprobs"] = Json::array();
    for (const Draw& draw : s.draws) {
      Json token = one(draw.token);
      token["top"] = Json::array();
      for (const TokenProbability& t : draw.top) token["top"].push_back(one(t));
      all["logprobs"].push_back(std::move(token));
    }
    return all;
  }
  /// A token on a line of its own: quoted, control characters escaped.
  std::string text_of(int32_t id) const {
    return terminal_text(json_text(session_.tokenizer.decode({&id, 1})));
  }

  const Session& session_;
  const GenerateArguments& o_;
  const std::string& prompt_;
  std::vector<Sample> samples_;
  size_t current_ = 0;
  std::optional<Error> error_;
};

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
  const auto engine = s.engine();
  ShownSamples shown(s, o, prompt);
  Request request = s.request;
  request.prompt = ids, request.stop_strings = o.stop;
  request.report.top = std::max<int64_t>(o.logprobs, 0);
  constexpr int64_t kTogether = 256;
  for (int64_t first = 0; first < o.samples; first += kTogether) {
    request.first_sample = first, request.n = std::min(kTogether, o.samples - first);
    engine->submit(request, shown.sink());
    engine->run_until_idle();
    shown.rethrow();
  }
  Json all = {{"model", s.path}};
  if (!o.rope_scaling.empty()) all["rope_scaling"] = o.rope_scaling;
  all.update(control_json(s.tokenizer, s.control, s.special));
  all["seed"] = o.seed;
  all["prompt"] = prompt;
  all["prompt_ids"] = ids;
  all["samples"] = shown.json();
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
      ->check(in(between(1, 0x1p30)));
  c->add_option("--logprobs", o->logprobs,
                "print the log-probability of each new token, and of the K most likely ones in its place")
      ->check(in(up_to(0x1p20)));
  c->add_flag("--quiet", o->quiet, "print the continuation only");
  add_json_option(*c, o->json);
  c->callback([o, &code] { code = generate(*o); });
}

}  // namespace ingot
