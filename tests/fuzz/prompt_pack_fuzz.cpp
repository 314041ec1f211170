// Fuzzes saved prompts; what is read is played by a model that repeats itself.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "eval/prompt_pack.h"

namespace {

class Echo : public ingot::TaskModel {
 public:
  int64_t context() const override { return 64; }
  std::vector<int32_t> encode(const std::string& text) const override {
    return std::vector<int32_t>(text.size(), 1);
  }
  std::optional<int32_t> begin() const override { return 0; }
  int32_t prefix() const override { return 0; }
  std::vector<ingot::ContinuationScore> score(std::span<const ingot::ScoreRequest>) override { return {}; }
  std::vector<std::vector<ingot::Answer>> answer(std::span<const ingot::AnswerRequest>,
                                                 const ingot::TaskSampling&) override {
    return {{{"again", 1, false}}};
  }
  ingot::ChatPrompt chat_prompt(std::span<const ingot::ChatTurn> turns, ingot::ThinkingMode) const override {
    return {std::vector<int32_t>(turns.size(), 1), turns.back().content, false};
  }
  ingot::ParsedAnswer parse_answer(const std::string& text, bool) const override { return {"a", text}; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    Echo model;
    const auto prompts = ingot::read_prompt_pack({reinterpret_cast<const char*>(data), size}, "fuzz");
    std::vector<ingot::PlayedPrompts> played;
    for (const ingot::SavedPrompts& p : prompts) played.push_back(play(p, model, {.max_tokens = 8}));
    pack_text(played);
    ingot::python_json(pack_json(played));
  } catch (const ingot::Error&) {
  }
  return 0;
}
