// What a task asks of a model: log-probabilities of texts, answers, and its chat format. engine_model.h
// answers with the engine; tests answer from tables. Not thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/task.h"

namespace ingot {

struct ScoreRequest {
  std::vector<int32_t> context,
      continuation;  ///< together at most context() ids; the context has at least one
};
struct ContinuationScore {
  double logprob = 0;  ///< sum over the continuation
  bool greedy = true;  ///< each of its ids is the most likely one
};

struct ChatTurn {
  std::string role, content;
};
struct AnswerRequest {
  std::vector<int32_t> prompt;
  uint64_t key = 0;  ///< of the random numbers: an answer is a function of prompt, weights, seed and key
  bool in_thinking = false;     ///< the prompt has begun the reasoning
  std::vector<ChatTurn> turns;  ///< what the prompt says in the chat format; empty: it is plain text
  ThinkingMode thinking = ThinkingMode::automatic;
};
struct Answer {
  std::string text;
  int64_t tokens = 0;
  bool cut = false;  ///< by the budget or the context
};

/// An answer in a chat format, taken apart.
struct ParsedAnswer {
  std::string reasoning, content;
};
/// Whether an answer in a chat format is whole: it came to its end by itself, and something stands behind its
/// reasoning, if it has any.
bool well_formed(const Answer& answer, const ParsedAnswer& parsed);
/// What the model reads before it answers.
struct ChatPrompt {
  std::vector<int32_t> ids;
  std::string text;
  bool in_thinking = false;
};

class TaskModel {
 public:
  virtual ~TaskModel() = default;
  /// Tokens that a sequence may have.
  virtual int64_t context() const = 0;
  /// Ids of plain text, without a begin token.
  virtual std::vector<int32_t> encode(const std::string& text) const = 0;
  /// What stands before every text; nothing where the model has no such token.
  virtual std::optional<int32_t> begin() const = 0;
  /// What a text is predicted from where nothing stands before it: begin(), else the end-of-text token.
  virtual int32_t prefix() const = 0;
  /// One score a request, in order.
  virtual std::vector<ContinuationScore> score(std::span<const ScoreRequest> requests) = 0;
  /// sampling.samples answers a request, in order.
  virtual std::vector<std::vector<Answer>> answer(std::span<const AnswerRequest> requests,
                                                  const TaskSampling& sampling) = 0;
  /// Error where the model has no chat template.
  virtual ChatPrompt chat_prompt(std::span<const ChatTurn> turns, ThinkingMode thinking) const = 0;
  virtual ParsedAnswer parse_answer(const std::string& text, bool in_thinking) const = 0;
};

}  // namespace ingot
