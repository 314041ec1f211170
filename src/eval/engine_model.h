// A model that answers tasks through the continuous-batching engine: scores and answers have the bits of the
// trainer's forward pass, whatever else runs. Memory beside the model: the engine's pages, bounded.
#pragma once
#include <optional>

#include "chat/chat_template.h"
#include "eval/task_model.h"
#include "exchange/control_tokens.h"
#include "infer/engine.h"
#include "reason/markovian_rsa.h"

namespace ingot {

struct EngineModelOptions {
  ControlTokens control;                        ///< what stands before texts and what ends answers
  std::optional<chat::ChatTemplate> chat = {};  ///< the end of its turn ends answers too
  int64_t cache_bytes = 24 << 20;               ///< of cached keys and values; at least one context
  int64_t logit_bytes = 16 << 20;               ///< of the logits of a call, which has 16 to 256 rows
  /// Answers to conversations are its last population: as many as a task has samples. Sampling is the task's;
  /// the tokens of all rounds are divided among the answers.
  std::optional<reason::RsaOptions> rsa = {};
};

/// Memory that an EngineModel takes beside the model at most: cached keys and values, a call and its logits.
int64_t engine_model_bytes(const Model& model, const EngineModelOptions& options = {});

class EngineModel : public TaskModel {
 public:
  /// `model` must outlive this.
  EngineModel(const Model& model, Tokenizer tokenizer, EngineModelOptions options);

  int64_t context() const override { return engine_.model().config().context; }
  std::vector<int32_t> encode(const std::string& text) const override { return tokenizer_.encode(text); }
  std::optional<int32_t> begin() const override { return options_.control.begin; }
  int32_t prefix() const override;
  std::vector<ContinuationScore> score(std::span<const ScoreRequest> requests) override;
  std::vector<std::vector<Answer>> answer(std::span<const AnswerRequest> requests,
                                          const TaskSampling& sampling) override;
  ChatPrompt chat_prompt(std::span<const ChatTurn> turns, ThinkingMode thinking) const override;
  ParsedAnswer parse_answer(const std::string& text, bool in_thinking) const override;

 private:
  ThinkingBudget budget_of(int64_t tokens, bool opened) const;
  std::vector<std::vector<Answer>> reasoned(std::span<const AnswerRequest> requests,
                                            const TaskSampling& sampling);
  Tokenizer tokenizer_;
  EngineModelOptions options_;
  Engine engine_;
};

}  // namespace ingot
