// A model for tests of tasks that is a formula of bytes, the same as tools/oracle/make_eval.py gives to
// lm-evaluation-harness.
#pragma once
#include <numeric>

#include "eval/task_model.h"

namespace ingot::test {

class FormulaModel : public TaskModel {
 public:
  explicit FormulaModel(int64_t context = 100000) : context_(context) {}
  int64_t context() const override { return context_; }
  std::vector<int32_t> encode(const std::string& text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::optional<int32_t> begin() const override { return {}; }
  int32_t prefix() const override { return 0; }
  std::vector<ContinuationScore> score(std::span<const ScoreRequest> requests) override {
    std::vector<ContinuationScore> scores;
    for (const ScoreRequest& r : requests) {
      std::vector<int32_t> ids = r.context;
      ids.insert(ids.end(), r.continuation.begin(), r.continuation.end());
      ContinuationScore s;
      for (size_t i = r.context.size(); i < ids.size(); ++i) {
        const int64_t cost = (ids[i] * 7 + ids[i - 1] * 3 + static_cast<int64_t>(r.context.size())) % 29;
        s.logprob -= static_cast<double>(cost) / 8;
        s.greedy = s.greedy && cost < 26;
      }
      scores.push_back(s);
    }
    return scores;
  }
  std::vector<std::vector<Answer>> answer(std::span<const AnswerRequest> requests,
                                          const TaskSampling& sampling) override {
    std::vector<std::vector<Answer>> all;
    for (const AnswerRequest& r : requests) {
      all.emplace_back();
      const int64_t sum = std::accumulate(r.prompt.begin(), r.prompt.end(), int64_t{0});
      for (int64_t i = 0; i < sampling.samples; ++i) {
        const int64_t s = sum + i;
        all.back().push_back(
            {s % 6 ? fmt::format(" Let me see: {}, so #### {}.", s % 7, s % 5) : " I do not know", 10 + i,
             false});
      }
    }
    return all;
  }
  /// "role: content" lines; the reply to a turn that ends with /think thinks, except to "stubborn".
  ChatPrompt chat_prompt(std::span<const ChatTurn> turns, ThinkingMode) const override {
    ChatPrompt p;
    for (const ChatTurn& t : turns) p.text += t.role + ": " + t.content + "\n";
    p.ids = encode(p.text);
    return p;
  }
  ParsedAnswer parse_answer(const std::string& text, bool) const override {
    const size_t end = text.find("</think>");
    if (!text.starts_with("<think>") || end == text.npos) return {"", text};
    return {text.substr(7, end - 7), text.substr(end + 8)};
  }

 private:
  int64_t context_;
};

}  // namespace ingot::test
