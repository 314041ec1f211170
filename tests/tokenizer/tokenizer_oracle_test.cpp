// The tokenizer against Hugging Face's library: fixtures of tools/oracle/tokenizer_fixtures.py. Learned
// vocabularies and merges, ids of tricky strings and of characters of all categories are equal, not close.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file_system.h"
#include "base/parallel.h"
#include "support/support.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot::tokenizer_oracle_test {

using nlohmann::json;

std::string read(const std::string& name) {
  return real_file_system().read(test::fixture("tokenizer/" + name));
}

std::string ids_hash(std::span<const int32_t> ids) {
  uint64_t h = 0;
  for (const int32_t id : ids) h = h * 1000003 + static_cast<uint64_t>(id) + 1;
  return fmt::format("{:016x}", h);
}

class TokenizerOracle : public testing::TestWithParam<const char*> {
 protected:
  const json fixture_ = json::parse(read(std::string(GetParam()) + ".json"));
};

TEST_P(TokenizerOracle, EncodesAlike) {
  const Tokenizer tokenizer = Tokenizer::from_json(fixture_["tokenizer"].dump());
  for (const json& c : fixture_["cases"]) {
    const auto text = c["text"].get<std::string>();
    const auto expected = c["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}), expected) << text;
    const auto plain = c.contains("plain") ? c["plain"].get<std::vector<int32_t>>() : expected;
    EXPECT_EQ(tokenizer.encode(text), plain) << text;
  }
  const auto wide = tokenizer.encode(read("unicode.txt"));
  EXPECT_EQ(ids_hash(wide), fixture_["unicode"].get<std::string>());
}

TEST_P(TokenizerOracle, LearnsAlike) {
  const json& options = fixture_["options"];
  if (options.is_null()) GTEST_SKIP() << "not a tokenizer that Ingot trains";
  BpeTrainOptions train;
  train.pattern = options["pattern"].get<std::string>();
  train.vocab_size = options["vocab_size"].get<int32_t>();
  train.min_frequency = options.value("min_frequency", int64_t{0});
  train.max_token_length = options.value("max_token_length", 0);
  train.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  const std::string text = read("text.txt");
  std::vector<std::string_view> documents;
  for (size_t at = 0; at != std::string::npos;) {
    const size_t end = text.find("\n\n", at);
    documents.push_back(std::string_view(text).substr(at, end - at));
    at = end == std::string::npos ? end : end + 2;
  }
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    BpeTrainer trainer(train);
    trainer.add(documents);
    const Tokenizer learned = trainer.train();
    const Tokenizer expected = Tokenizer::from_json(fixture_["tokenizer"].dump());
    EXPECT_EQ(learned.spec().vocabulary, expected.spec().vocabulary);
    EXPECT_EQ(learned.spec().merges, expected.spec().merges);
    EXPECT_EQ(learned.spec().added_tokens, expected.spec().added_tokens);
  }
}

TEST_P(TokenizerOracle, NamedPatternIsTheirs) {
  const json& options = fixture_["options"];
  if (options.is_null()) GTEST_SKIP() << "not a named pattern";
  TokenizerSpec named;
  set_pattern(named, options["pattern"].get<std::string>());
  const Tokenizer theirs = Tokenizer::from_json(fixture_["tokenizer"].dump());
  EXPECT_EQ(named.splits, theirs.spec().splits);
  EXPECT_EQ(named.gpt2_split, theirs.spec().gpt2_split);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerOracle,
                         testing::Values("gpt2", "llama3", "qwen2", "o200k", "nanochat", "deepseek-v3",
                                         "frequency", "short", "exhausted", "steps", "ignore"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The fixture's template puts <|im_start|> before and <|im_end|> after the text.
TEST(TokenizerOracleTemplate, GivesRoles) {
  const json fixture = json::parse(read("steps.json"));
  const Tokenizer tokenizer = Tokenizer::from_json(fixture["tokenizer"].dump());
  EXPECT_EQ(tokenizer.roles().bos, 1);
  EXPECT_EQ(tokenizer.roles().eos, 2);
  const auto ids = tokenizer.encode("a", {.add_bos = true, .add_eos = true});
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids.back(), 2);
}

}  // namespace ingot::tokenizer_oracle_test
