// What `generate`, `chat` and `serve` share: options, and a model opened with its tokenizer.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/model_argument.h"
#include "chat/chat_template.h"
#include "exchange/control_tokens.h"
#include "infer/engine.h"
#include "infer/packed_model.h"
#include "reason/markovian_rsa.h"
#include "tokenizer/tokenizer.h"

namespace CLI {
class App;
}

namespace ingot {

struct InferenceArguments {
  ModelArgument model;
  std::string tokenizer, weights, chat_template, rope_scaling, kernels = "strict";
  Request request;  ///< sampling and max_tokens
  int64_t seed = 1;
  bool absorb = false, special = false, no_begin = false;
};
/// Which model, and how it is opened.
void add_model_options(CLI::App* c, InferenceArguments& o);
/// --chat-template, for commands that hold conversations.
void add_chat_template_option(CLI::App* c, InferenceArguments& o);
/// The same, and how it is sampled.
void add_inference_options(CLI::App* c, InferenceArguments& o);

/// --population, --candidates, --rounds, --budget, --tail, --answer-tokens, --compaction.
void add_rsa_options(CLI::App& c, reason::RsaOptions& rsa, std::string& compaction);
/// --reply: what the replies of rows that teach aggregation do (reason/aggregate.h).
void add_reply_option(CLI::App& c, std::string& reply);

void add_rope_scaling_option(CLI::App* c, std::string& option);
/// Opens a model; "" for `rope_scaling` leaves its positions as they are.
StoredModel open_model(const std::string& path, const std::string& rope_scaling);

/// A model, its tokenizer, what stands around its texts, and a request without a prompt, completed from all
/// three.
struct Session {
  std::string path;
  PackedModel model;
  Tokenizer tokenizer;
  ControlTokens control;
  Request request;
  std::optional<chat::ChatTemplate> chat_template = {};
  bool special = false;
  LatentDecoding latents = LatentDecoding::materialised;

  /// `text` as ids; `begins`: behind the begin token, if the model has one. Counts special tokens that stay
  /// text.
  std::vector<int32_t> encode(const std::string& text, bool begins, SpelledSpecials& spelled) const;
  /// Must not outlive the session.
  std::unique_ptr<Engine> engine() const;
};
/// Opens the model; Ctrl-C ends the program meanwhile and afterwards: there is nothing to save.
Session open_session(const InferenceArguments& o);

/// {"begin_token": {"id", "text"} or null, "end_tokens": [...], "special_tokens": "text" or "parse"}.
nlohmann::ordered_json control_json(const Tokenizer& tokenizer, const ControlTokens& control, bool special);

void add_generate_command(CLI::App& app, int& code);
void add_chat_command(CLI::App& app, int& code);
void add_serve_command(CLI::App& app, int& code);

}  // namespace ingot
