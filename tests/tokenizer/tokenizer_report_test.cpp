// The report on a tokenizer: rates, ids that nothing gives, round trip.
#include "tokenizer/tokenizer_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/support.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot::test::tokenizer_report_test {

Tokenizer learned(const char* pattern) {
  BpeTrainer trainer({.vocab_size = 300, .pattern = pattern, .special_tokens = {"<|end|>", "<|a|>"}});
  const std::string_view documents[] = {"the quick brown fox jumps over the lazy dog, the 12 foxes, the end"};
  trainer.add(documents);
  return trainer.train();
}

TEST(TokenizerReport, MeasuresSamplesAndFindsEverythingOfAGoodTokenizer) {
  const Tokenizer t = learned("gpt2");
  const TokenizerReport r = report_on(t);
  EXPECT_EQ(r.texts.size(), 10u);
  for (const auto& text : r.texts) {
    EXPECT_TRUE(text.comes_back) << text.name;
    EXPECT_GT(text.bytes, text.tokens - 1) << text.name;
  }
  EXPECT_EQ(r.random_back, r.random_texts);
  EXPECT_EQ(r.special, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(r.holes, 0);
  EXPECT_TRUE(r.unreachable.empty());
  EXPECT_TRUE(r.unused.empty());
  EXPECT_GE(t.token_bytes(r.longest[0]).size(), t.token_bytes(r.longest[1]).size());
}

TEST(TokenizerReport, FindsHolesAndTokensThatNothingGives) {
  TokenizerSpec spec = learned("gpt2").spec();
  const int32_t fox = [&] {
    for (size_t i = 0; i < spec.vocabulary.size(); ++i)
      if (spec.vocabulary[i] == "fox") return static_cast<int32_t>(i);
    return -1;
  }();
  std::erase_if(spec.merges, [&](const auto& m) {
    return spec.vocabulary[static_cast<size_t>(m[0])] + spec.vocabulary[static_cast<size_t>(m[1])] == "fox";
  });
  spec.vocabulary.resize(spec.vocabulary.size() + 3);
  spec.vocabulary.back() = "zzzz";
  const Tokenizer t = Tokenizer::from_spec(spec);
  const NamedText text{"x", "the dog"};
  const TokenizerReport r = report_on(t, {&text, 1});
  EXPECT_EQ(r.holes, 2);
  const auto has = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  if (fox >= 0) {
    EXPECT_TRUE(has(r.unreachable, fox));
  }
  EXPECT_TRUE(has(r.unreachable, t.vocab_size() - 1));
  EXPECT_TRUE(has(r.unused, t.vocab_size() - 1));
  ASSERT_EQ(r.texts.size(), 1u);
  EXPECT_EQ(r.texts[0].bytes, 7);
}

TEST(TokenizerReport, DigitsStandAlone) {
  const Tokenizer t = learned("digits");
  const auto ids = t.encode("1212");
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_EQ(t.spec().splits.size(), 1u);
}

}  // namespace ingot::test::tokenizer_report_test
