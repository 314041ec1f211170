// What clients of OpenAI's API ask for, read from JSON into typed requests. Every number has a range; a
// field that this server does not implement is refused by its name unless its value changes nothing. Pure
// functions. (OpenAI API reference; extensions as in vLLM: top_k, min_p, ignore_eos, return_token_ids,
// chat_template_kwargs, and our thinking_budget and reason)
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "chat/chat_template.h"
#include "chat/conversation.h"
#include "infer/sampling.h"
#include "reason/markovian_rsa.h"

namespace ingot::serve {

namespace limits {
inline constexpr int64_t kSamples = 64;        ///< n
inline constexpr int64_t kPrompts = 256;       ///< of one request
inline constexpr int64_t kChoices = 1024;      ///< prompts times n
inline constexpr int64_t kStops = 16;          ///< stop strings
inline constexpr int64_t kStopBytes = 1024;    ///< of one of them
inline constexpr int64_t kTop = 20;            ///< alternatives of a token
inline constexpr int64_t kReported = 1 << 20;  ///< log-probabilities of one reply
inline constexpr int64_t kRounds = 16;         ///< of aggregation
}  // namespace limits

/// What both kinds of request have.
struct Generation {
  std::string model;  ///< "": any
  SamplingOptions sampling;
  std::optional<int64_t> seed;
  int64_t n = 1;
  std::optional<int64_t> max_tokens;
  std::vector<std::string> stop;
  bool stream = false, include_usage = false;
  int64_t top = -1;  ///< alternatives of each token; -1: no log-probabilities at all
  bool token_ids = false;
  bool ignore_end = false;  ///< the model's end tokens do not stop
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest : Generation {
  std::vector<Prompt> prompts;
  bool echo = false;
  bool begin_token = true;  ///< before texts, where the model has one
};

struct ChatRequest : Generation {
  chat::Conversation conversation;
  std::optional<bool> enable_thinking;
  std::string template_arguments;  ///< JSON text of an object; "" if none
  std::optional<int64_t> thinking_budget;
  /// "reason": many rollouts, one answer (docs/serve.md). Its sampling is the request's.
  std::optional<reason::RsaOptions> reason;
};

/// `vocab`: ids of a prompt lie below it.
CompletionRequest read_completion(const nlohmann::json& body, int64_t vocab);
ChatRequest read_chat(const nlohmann::json& body);

struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;
  chat::Conversation conversation;  ///< where there is no prompt
  bool begin_token = true, generation_prompt = true, texts = false;
};
TokenizeRequest read_tokenize(const nlohmann::json& body);

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> ids;
};
DetokenizeRequest read_detokenize(const nlohmann::json& body, int64_t vocab);

}  // namespace ingot::serve
