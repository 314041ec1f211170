// Replies of OpenAI's API as JSON: whole, or as the events of a stream. What a reply says is plain data, so
// this needs no engine. A ReplyWriter belongs to one request; const methods are thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/conversation.h"
#include "infer/sampling.h"
#include "serve/api_error.h"
#include "tokenizer/tokenizer.h"

namespace ingot::serve {

struct ReportedToken {
  int32_t id = 0;
  std::optional<float> logprob;  ///< absent: the first token of a text has none
  std::vector<TokenProbability> top;
  bool stop = false;  ///< an end token, which has no text
};

/// What a choice has got since it was last written, or all of it.
struct Addition {
  int64_t choice = 0;
  std::string text;       ///< chat: content
  std::string reasoning;  ///< chat
  std::vector<chat::ToolCall> calls;
  int64_t first_call = 0;             ///< number of the first of `calls` in its message
  std::vector<ReportedToken> tokens;  ///< where log-probabilities or ids are asked for
  int64_t offset = 0;                 ///< characters of the choice's tokens before these
  std::vector<int32_t> prompt;   ///< where ids are asked for: of the prompt, with a choice's first addition
  const char* finish = nullptr;  ///< "stop", "length" or "tool_calls"; nullptr: more follows
};

struct UsageTotals {
  int64_t prompt = 0, cached = 0, output = 0, reasoning = 0;
};

struct ReplyOptions {
  bool chat = false;
  std::string model;
  int64_t created = 0;  ///< Unix seconds
  bool logprobs = false, token_ids = false;
};

class ReplyWriter {
 public:
  /// The reply gets an id of its own.
  ReplyWriter(Tokenizer tokenizer, ReplyOptions options);

  /// The reply of a request that does not stream; one addition for each choice, in order.
  std::string whole(const std::vector<Addition>& choices, const UsageTotals& usage) const;
  /// Events: "data: {...}\n\n".
  std::string begin_event(int64_t choice) const;  ///< chat: who speaks; "" otherwise
  std::string event(const Addition& addition) const;
  /// Empties an addition that was written; what comes next continues its numbers.
  void advance(Addition& addition) const;
  std::string usage_event(const UsageTotals& usage) const;
  static std::string error_event(const ApiError& error);
  static std::string done_event() { return "data: [DONE]\n\n"; }

 private:
  std::string with_head(const char* object, const std::string& choices, const std::string& usage) const;
  std::string logprobs_json(const Addition& a) const;
  std::string completion_logprobs(const Addition& a) const;
  std::string chat_logprobs(const Addition& a) const;
  std::string choice_json(const Addition& a, bool whole) const;
  std::string message_json(const Addition& a, bool whole) const;
  std::string token_text(int32_t id) const;

  const Tokenizer tokenizer_;
  const ReplyOptions options_;
  const std::string id_;
};

/// A text as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

/// Number of code points of a text whose bytes may begin or end inside one: those that begin in it.
int64_t characters(std::string_view bytes);

/// 24 random hexadecimal digits.
std::string random_name();

}  // namespace ingot::serve
