// `ingot generate` and `ingot chat`: continue a prompt or a conversation with a model from a run folder.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>

#include "apps/commands.h"
#include "exchange/stored_model.h"
#include "infer/generator.h"
#include "infer/packed_model.h"
#include "tape/op.h"
#include "tokenizer/tokenizer.h"

namespace ingot {
namespace {

struct InferenceArguments {
  std::string run, checkpoint, tokenizer, weights, prompt = "The ", kernels = "strict";
  GenerateOptions generate;
  int64_t seed = 1;
  bool quiet = false, absorb = false;
};

/// A model, its tokenizer, and generation options completed from both.
struct Session {
  PackedModel model;
  std::optional<Tokenizer> tokenizer;
  GenerateOptions generate;
};

/// Ctrl-C ends the program at any moment: there is nothing to save.
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

Session open_session(const InferenceArguments& o) {
  if (o.run.empty() && o.checkpoint.empty())
    throw Error("no model is named", "give --run FOLDER (a run folder) or --checkpoint FOLDER");
  end_on_interrupt();
  set_kernel_policy(enum_from<KernelPolicy>(o.kernels, "kernel policy"));
  const StoredModel stored =
      open_stored_model(real_file_system(), o.checkpoint.empty() ? o.run : o.checkpoint);
  std::optional<WeightForm> form;
  if (!o.weights.empty()) form = enum_from<WeightForm>(o.weights, "form of weights");
  Session s{PackedModel(stored, form), load_tokenizer(stored, o.tokenizer), {}};
  s.generate = o.generate;
  s.generate.vocab = s.tokenizer->vocab_size();
  s.generate.sampling.seed = static_cast<uint64_t>(o.seed);
  if (s.tokenizer->roles().eos) s.generate.stop_ids = {*s.tokenizer->roles().eos};
  return s;
}

/// Appends `text` to the sequence, generates, and prints the new text token by token.
void print_continuation(const Session& s, Generator& generator, SequenceState& sequence,
                        const std::string& text) {
  StreamDecoder decoder(*s.tokenizer);
  generator.generate(sequence, s.tokenizer->encode(text), s.generate, [&](int32_t id) {
    std::cout << decoder.push(id) << std::flush;
    return true;
  });
  std::cout << decoder.finish() << "\n";
}

int generate(const InferenceArguments& o) {
  if (o.prompt.empty()) throw Error("the prompt is empty", "give --prompt \"some text\"");
  const Session s = open_session(o);
  Generator generator(s.model.model(), 0, o.absorb ? LatentDecoding::absorbed : LatentDecoding::materialised);
  SequenceState sequence = generator.new_sequence();
  if (!o.quiet) std::cout << o.prompt;
  print_continuation(s, generator, sequence, o.prompt);
  return 0;
}

/// Without chat roles: each line is appended to the text, and the model continues it.
int chat(const InferenceArguments& o) {
  const Session s = open_session(o);
  Generator generator(s.model.model(), 0, o.absorb ? LatentDecoding::absorbed : LatentDecoding::materialised);
  SequenceState sequence = generator.new_sequence();
  std::cout << "Type text to be continued. Empty line: reset. Ctrl-D: quit.\n";
  std::string line;
  while (std::cout << "> " << std::flush, std::getline(std::cin, line)) {
    const auto needed = static_cast<int64_t>(s.tokenizer->encode(line).size()) + s.generate.max_tokens;
    if (line.empty() || sequence.tokens() + needed > s.model.model().config().context) {
      sequence = generator.new_sequence();
      std::cout << (line.empty() ? "(reset)\n" : "(context full: conversation reset)\n");
    }
    if (!line.empty()) print_continuation(s, generator, sequence, line);
  }
  std::cout << "\n";
  return 0;
}

void add_options(CLI::App* c, InferenceArguments& o) {
  SamplingOptions& s = o.generate.sampling;
  o.generate.prefill_chunk = 1024;  // rows per pass over the weights
  s.temperature = 0.8;
  s.top_p = 0.95;
  c->add_option("--run", o.run, "run folder, or the folder of an import");
  c->add_option("--checkpoint", o.checkpoint, "one checkpoint instead of the run's newest");
  c->add_option("--tokenizer", o.tokenizer, "tokenizer folder or file; default: the run's");
  c->add_option("--weights", o.weights,
                "f32, bf16 or int8 (a quarter of the memory and time of f32); default: as trained");
  c->add_option("--max-tokens", o.generate.max_tokens, "maximum number of new tokens")->capture_default_str();
  c->add_option("--temperature", s.temperature, "sampling temperature; 0: always the most likely token")
      ->capture_default_str();
  c->add_option("--top-k", s.top_k, "sample from the k most likely tokens; 0: all")->capture_default_str();
  c->add_option("--top-p", s.top_p, "sample from the smallest set of tokens with this total probability")
      ->capture_default_str();
  c->add_option("--min-p", s.min_p, "drop tokens below this fraction of the largest probability")
      ->capture_default_str();
  c->add_option("--seed", o.seed, "seed of the sampling")->capture_default_str();
  c->add_flag(
      "--absorb", o.absorb,
      "latent attention: attend in the latent space; faster, log-probabilities not bit for bit training's");
  c->add_option("--kernels", o.kernels, "strict, or any: allow slow reference kernels")
      ->capture_default_str();
}

}  // namespace

void add_inference_commands(CLI::App& app, int& code) {
  auto g = std::make_shared<InferenceArguments>();
  CLI::App* generate_app = app.add_subcommand("generate", "continue a prompt");
  add_options(generate_app, *g);
  generate_app->add_option("--prompt", g->prompt, "text to continue")->capture_default_str();
  generate_app->add_flag("--quiet", g->quiet, "print the continuation only");
  generate_app->callback([g, &code] { code = generate(*g); });
  auto o = std::make_shared<InferenceArguments>();
  CLI::App* chat_app = app.add_subcommand("chat", "chat with a model: it continues what you type");
  add_options(chat_app, *o);
  chat_app->callback([o, &code] { code = chat(*o); });
}

}  // namespace ingot
