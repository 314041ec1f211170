// `ingot chat` with a model that was fine-tuned on conversations, exported, and asked in transformers
// (tools/oracle/check_chat.py): the same answers, token for token, and the prompt's ids.
#include <gtest/gtest.h>

#include <filesystem>

#include "support/imported.h"
#include "tokenizer/tokenizer.h"

namespace ingot::test::chat_oracle_test {

using nlohmann::json;

TEST(ChatOracle, AnswersAsTransformersDoesBehindItsChatTemplate) {
  const TempDir dir;
  const std::string model = fixture("generation/chat");
  std::filesystem::copy(model, dir / "hf");
  const Tokenizer tokenizer = Tokenizer::load(model);
  const json cases = json::parse(read_text(model + "/answers.json"));
  ASSERT_EQ(cases.size(), 8u);
  int thoughts = 0;
  for (const json& c : cases) {
    write_text(dir / "lines", c["question"].get<std::string>() + "\n/save " + (dir / "said") + "\n");
    const ShellResult r =
        shell(dir, "rm -f $DIR/said; $INGOT chat $DIR/hf --temperature 0 --max-tokens 120 <$DIR/lines");
    ASSERT_EQ(r.exit_code, 0) << r.err;
    EXPECT_EQ(r.out, c["answer"].get<std::string>() + "\n") << r.err;
    const json said = json::parse(read_text(dir / "said"))["messages"].back();
    EXPECT_EQ(said["content"], c["answer"]);
    const std::string reasoning = c["reasoning"];
    EXPECT_EQ(said.value("reasoning_content", ""), reasoning);
    thoughts += !reasoning.empty();
    // The same ids: the reply is rendered and encoded as it was generated.
    const std::vector<int32_t> ids = c["ids"];
    const ShellResult shown = shell(dir,
                                    "mv $DIR/said $DIR/said.jsonl; $INGOT data preview $DIR/said.jsonl "
                                    "--model $DIR/hf --json");
    ASSERT_EQ(shown.exit_code, 0) << shown.err;
    const json row = shown.json()[0];
    std::vector<int32_t> generated;
    for (size_t i = 0; i < row["ids"].size(); ++i)
      if (row["in_loss"][i]) generated.push_back(row["ids"][i]);
    EXPECT_EQ(generated, ids) << c["question"] << ": " << tokenizer.decode(ids);
  }
  EXPECT_EQ(thoughts, 2);
}

}  // namespace ingot::test::chat_oracle_test
