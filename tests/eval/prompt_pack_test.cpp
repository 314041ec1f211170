// Saved prompts: rows, a conversation that is played through a model, what is said of its replies.
#include "eval/prompt_pack.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file_system.h"
#include "support/corpus.h"
#include "support/imported.h"

#define LLVMFuzzerTestOneInput prompt_pack_input  // each fuzzer's entry has a name of its own in one program
#include "fuzz/prompt_pack_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace ingot::test::prompt_pack_test {

/// Answers with how many turns it was shown; the prompt is all of them.
class Counter : public TaskModel {
 public:
  int64_t context() const override { return 1000; }
  std::vector<int32_t> encode(const std::string& text) const override { return {text.begin(), text.end()}; }
  std::optional<int32_t> begin() const override { return {}; }
  int32_t prefix() const override { return 0; }
  std::vector<ContinuationScore> score(std::span<const ScoreRequest>) override { return {}; }
  std::vector<std::vector<Answer>> answer(std::span<const AnswerRequest> requests,
                                          const TaskSampling& sampling) override {
    if (requests[0].key == 2) return {{{"  ", 1, false}}};
    return {{{seen.back() + "!", static_cast<int64_t>(requests[0].prompt.size()), sampling.max_tokens < 5}}};
  }
  ChatPrompt chat_prompt(std::span<const ChatTurn> turns, ThinkingMode thinking) const override {
    std::string text(name_of(thinking));
    for (const ChatTurn& t : turns) text += "|" + t.role + ":" + t.content;
    seen.push_back(text);
    return {encode(text), text, false};
  }
  ParsedAnswer parse_answer(const std::string& text, bool) const override { return {"thought", text}; }
  mutable std::vector<std::string> seen;
};

TEST(PromptPack, IsPlayedTurnByTurn) {
  const auto prompts = read_prompt_pack(
      "{\"name\": \"cook\", \"system\": \"sea\", \"turns\": [\"a\", \"b\", \"c\"], \"thinking\": \"off\"}\n\n"
      "{\"turns\": [\"d\"]}\n",
      "pack");
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[1].name, "row 3");
  Counter model;
  const std::vector<PlayedPrompts> played = {play(prompts[0], model, {}), play(prompts[1], model, {})};
  ASSERT_EQ(played[0].replies.size(), 3u);
  EXPECT_EQ(model.seen[0], "off|system:sea|user:a");
  EXPECT_EQ(model.seen[1], "off|system:sea|user:a|assistant:off|system:sea|user:a!|user:b");
  EXPECT_EQ(model.seen[3], "default|user:d");
  EXPECT_TRUE(played[0].replies[2].empty());
  const std::string text = pack_text(played);
  EXPECT_NE(text.find("  thinking   thought\n"), std::string::npos) << text;
  EXPECT_NE(text.find("(an empty answer)"), std::string::npos) << text;
  EXPECT_NE(text.find("2 conversations, 4 answers: 1 empty, 0 cut"), std::string::npos) << text;
  const TaskJson json = pack_json(played);
  EXPECT_EQ(json[0]["messages"].size(), 7u);
  EXPECT_EQ(json[1]["messages"][1]["reasoning_content"], "thought");
}

TEST(PromptPack, FaultsHaveALine) {
  const auto fault = [](const std::string& text) {
    try {
      read_prompt_pack(text, "pack");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_NE(fault("").find("'pack' has no saved prompts"), std::string::npos);
  const std::string good = "{\"turns\": [\"a\"]}\n";
  for (const char* line : {"[]", "{", "{\"turns\": []}", "{\"turns\": \"a\"}", "{\"turns\": [1]}",
                           "{\"turns\": [\"a\"], \"name\": 1}", "{\"turns\": [\"a\"], \"more\": 1}",
                           "{\"turns\": [\"a\"], \"thinking\": \"switched\"}"})
    EXPECT_NE(fault(good + line).find("pack:2"), std::string::npos) << line << ": " << fault(good + line);
}

TEST(PromptPack, CorpusAndChangedBytesAreReadOrRefused) {
  EXPECT_GE(replay_corpus("prompt_pack", prompt_pack_input, 200), 3);
}

TEST(PromptPack, ShippedOnesAreRead) {
  const std::string folder = std::string(INGOT_SOURCE_DIR) + "/tasks/prompts";
  for (const std::string& file : real_file_system().list(folder))
    EXPECT_GE(read_prompt_pack(read_text(folder + "/" + file), file).size(), 5u) << file;
}

TEST(PromptPack, CommandNeedsAChatTemplate) {
  const TempDir dir;
  generation_fixture(dir, "llama");
  const ShellResult base = shell(dir, "$INGOT eval prompts $DIR/llama --prompts none/such.jsonl");
  EXPECT_EQ(base.exit_code, 1);
  write_text(dir / "own.jsonl", "{\"turns\": [\"the river\", \"and\"]}\n");
  const ShellResult refused = shell(dir, "$INGOT eval prompts $DIR/llama --prompts $DIR/own.jsonl");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("has no chat template"), std::string::npos) << refused.err;
  write_text(dir / "llama/chat_template.jinja",
             "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  const ShellResult played = shell(dir,
                                   "$INGOT eval prompts $DIR/llama --prompts $DIR/own.jsonl --max-tokens 5 "
                                   "--temperature 0.5 --seed 3 --json -");
  ASSERT_EQ(played.exit_code, 0) << played.err;
  EXPECT_EQ(played.json()[0]["messages"].size(), 4u);
  EXPECT_LE(played.json()[0]["replies"][0]["tokens"], 5);
}

}  // namespace ingot::test::prompt_pack_test
