// Fuzzes task files: the first line that is "---" divides the TOML from the rows. What is read runs on a
// model that knows nothing.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "eval/results.h"
#include "eval/run_task.h"

namespace {

class Blank : public ingot::TaskModel {
 public:
  int64_t context() const override { return 64; }
  std::vector<int32_t> encode(const std::string& text) const override {
    return std::vector<int32_t>(text.size(), 1);
  }
  std::optional<int32_t> begin() const override { return 0; }
  int32_t prefix() const override { return 0; }
  std::vector<ingot::ContinuationScore> score(std::span<const ingot::ScoreRequest> r) override {
    std::vector<ingot::ContinuationScore> scores;
    for (const auto& one : r) scores.push_back({-static_cast<double>(one.continuation.size()), true});
    return scores;
  }
  std::vector<std::vector<ingot::Answer>> answer(std::span<const ingot::AnswerRequest> r,
                                                 const ingot::TaskSampling& s) override {
    const ingot::Answer one{"<think>a</think> 1, \xff 2", 3, false};
    return {r.size(), std::vector<ingot::Answer>(static_cast<size_t>(s.samples), one)};
  }
  ingot::ChatPrompt chat_prompt(std::span<const ingot::ChatTurn> turns, ingot::ThinkingMode) const override {
    return {{1}, turns.back().content, false};
  }
  ingot::ParsedAnswer parse_answer(const std::string& text, bool) const override { return {"a", text}; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t mark = text.find("\n---\n");
  if (mark == text.npos) return 0;
  try {
    const std::string rows = text.substr(mark + 5);
    const ingot::Task task =
        ingot::Task::parse(text.substr(0, mark + 1), "fuzz.toml", rows, "rows", rows, "examples");
    if (task.rows().size() > 8 || task.config().sampling.samples > 16) return 0;
    Blank model;
    const ingot::TaskResult result = ingot::run_task(task, model);
    for (const auto& sample : result.samples) ingot::python_json(sample);
    ingot::results_table({{&task, result}});
    ingot::harness_config(task, false);
  } catch (const ingot::Error&) {
  }
  return 0;
}
