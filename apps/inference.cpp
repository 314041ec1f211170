// See inference.h.
#include "apps/inference.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "exchange/chat_format.h"
#include "exchange/rope_stretch.h"
#include "tape/op.h"

namespace ingot {
namespace {

void end_on_interrupt() {
  struct sigaction before {};
  ::sigaction(SIGINT, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;  // in the background of a shell
  struct sigaction action {};
  action.sa_handler = [](int) {
    constexpr std::string_view kLine = "\ninterrupted\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
    ::_exit(130);
  };
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void add_rope_scaling_option(CLI::App* c, std::string& option) {
  c->add_option(
      "--rope-scaling", option,
      "stretch rotary positions over a longer context than the model was trained with: yarn:4 for 4 "
      "times as long (also linear:4, llama3:4); none: as if the model had no such scaling");
}

StoredModel open_model(const std::string& path, const std::string& rope_scaling) {
  StoredModel stored = open_stored_model(real_file_system(), path);
  if (!rope_scaling.empty()) stretch_rope(stored, rope_scaling);
  return stored;
}

Session open_session(const InferenceArguments& o) {
  const std::string path = o.model.path();
  validate(o.request.sampling);
  end_on_interrupt();
  set_kernel_policy(enum_from<KernelPolicy>(o.kernels, "kernel policy"));
  const StoredModel stored = open_model(path, o.rope_scaling);
  std::optional<WeightForm> form;
  if (!o.weights.empty()) form = enum_from<WeightForm>(o.weights, "form of weights");
  Tokenizer tokenizer = load_tokenizer(stored, o.tokenizer);
  ControlTokens control = control_tokens(real_file_system(), stored, tokenizer);
  if (o.no_begin) control.begin.reset();
  Session s{stored.reader.path(), PackedModel(stored, form), std::move(tokenizer), std::move(control),
            o.request};
  s.special = o.special;
  s.latents = o.absorb ? LatentDecoding::absorbed : LatentDecoding::materialised;
  s.request.sampling.seed = static_cast<uint64_t>(o.seed);
  s.request.stop_ids = s.control.end;
  s.chat_template = chat_template_of(real_file_system(), stored, o.chat_template);
  return s;
}

std::unique_ptr<Engine> Session::engine() const {
  EngineOptions options;
  options.token_budget = 1024;  // rows per pass over the weights
  options.latents = latents;
  return std::make_unique<Engine>(model.model(), tokenizer, options);
}

std::vector<int32_t> Session::encode(const std::string& text, bool begins, SpelledSpecials& spelled) const {
  std::vector<int32_t> ids;
  if (begins && control.begin) ids.push_back(*control.begin);
  tokenizer.encode_to(text, {.parse_special = special, .spelled = &spelled}, ids);
  return ids;
}

nlohmann::ordered_json control_json(const Tokenizer& tokenizer, const ControlTokens& control, bool special) {
  using Json = nlohmann::ordered_json;
  const auto token = [&](int32_t id) {
    return Json{{"id", id}, {"text", ControlTokens::text(tokenizer, {&id, 1})}};
  };
  Json end = Json::array();
  for (const int32_t id : control.end) end.push_back(token(id));
  return {{"begin_token", control.begin ? token(*control.begin) : Json(nullptr)},
          {"end_tokens", std::move(end)},
          {"special_tokens", special ? "parse" : "text"}};
}

void add_model_options(CLI::App* c, InferenceArguments& o) {
  add_model_argument(*c, o.model);
  c->add_option("--tokenizer", o.tokenizer, "tokenizer folder or file; default: the run's");
  c->add_option("--weights", o.weights,
                "f32, bf16 or int8 (a quarter of the memory and time of f32); default: as trained");
  add_rope_scaling_option(c, o.rope_scaling);
  c->add_flag("--no-begin-token", o.no_begin,
              "leave out the token that the tokenizer's template or the run's documents begin with");
  c->add_flag(
      "--absorb", o.absorb,
      "latent attention: attend in the latent space; faster, log-probabilities not bit for bit training's");
  c->add_option("--kernels", o.kernels, "strict, or any: allow slow reference kernels")
      ->capture_default_str();
}

void add_chat_template_option(CLI::App* c, InferenceArguments& o) {
  c->add_option(
      "--chat-template", o.chat_template,
      "file of a chat template, the name of a shipped one (chatml-think), or none; default: the model's");
}

void add_inference_options(CLI::App* c, InferenceArguments& o) {
  SamplingOptions& s = o.request.sampling;
  s.temperature = 0.8;
  s.top_p = 0.95;
  add_model_options(c, o);
  c->add_option("--max-tokens", o.request.max_tokens, "maximum number of new tokens")
      ->capture_default_str()
      ->check(in(between(1, 0x1p40)));
  c->add_option("--temperature", s.temperature, "sampling temperature; 0: always the most likely token")
      ->capture_default_str()
      ->check(in(up_to(1e6)));
  c->add_option("--top-k", s.top_k, "sample from the k most likely tokens; 0: all")
      ->capture_default_str()
      ->check(in(up_to(0x1p40)));
  c->add_option("--top-p", s.top_p, "sample from the smallest set of tokens with this total probability")
      ->capture_default_str()
      ->check(in(up_to(1)));
  c->add_option("--min-p", s.min_p, "drop tokens below this fraction of the largest probability")
      ->capture_default_str()
      ->check(in(up_to(1)));
  c->add_option("--seed", o.seed, "seed of the sampling")->capture_default_str()->check(in(up_to(0x1p63)));
  c->add_flag(
      "--special", o.special,
      "special tokens that the text spells, such as <|im_start|>, become tokens; default: plain text");
}

void add_inference_commands(CLI::App& app, int& code) {
  add_generate_command(app, code);
  add_chat_command(app, code);
  add_serve_command(app, code);
}

}  // namespace ingot
