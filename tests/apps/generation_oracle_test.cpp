// `ingot generate` of imports whose tokenizer begins every text with a token and whose generation_config.json
// has two end ids, against what transformers generates with its defaults (tools/oracle/make_generation.py):
// 200 greedy tokens.
#include <gtest/gtest.h>

#include "support/imported.h"

namespace ingot::test::generation_oracle_test {

using nlohmann::json;

class Generation : public ::testing::TestWithParam<const char*> {};

TEST_P(Generation, GreedyTextIsThatOfTransformersDefaults) {
  const TempDir dir;
  const std::string name = GetParam();
  ASSERT_EQ(shell(dir, "$INGOT import '" + fixture("generation/" + name) + "' $DIR/in").exit_code, 0);
  const json cases = json::parse(read_text(fixture("generation/" + name + "/generation.json")));
  ASSERT_EQ(cases.size(), 4u);
  int ended = 0;
  for (const json& c : cases) {
    write_text(dir / "prompt", c["prompt"].get<std::string>());
    const ShellResult r = shell(
        dir, "$INGOT generate $DIR/in --prompt-file $DIR/prompt --temperature 0 --max-tokens 200 --json");
    ASSERT_EQ(r.exit_code, 0) << r.err;
    const json made = r.json();
    EXPECT_EQ(made["prompt_ids"], c["prompt_ids"]) << c["prompt"];
    std::vector<int32_t> expected = c["ids"];
    const bool ends = expected.back() > 300;  // transformers returns the end id too
    if (ends) {
      expected.pop_back();
      ++ended;
    }
    EXPECT_EQ(made["samples"][0]["ids"], json(expected)) << c["prompt"];
    EXPECT_EQ(made["samples"][0]["ended_by"], ends ? "end_token" : "max_tokens") << c["prompt"];
  }
  EXPECT_EQ(ended, 2) << "one text for each end id";
}

INSTANTIATE_TEST_SUITE_P(Oracle, Generation, ::testing::Values("llama", "zaya"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace ingot::test::generation_oracle_test
