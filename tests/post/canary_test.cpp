// Canaries: planted repetition is seen, text is not taken for it.
#include "post/rl/canary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "support/support.h"

namespace ingot::canary_test {
namespace {

/// Ids of a text, each word or mark of punctuation one id: what a tokenizer with a large vocabulary makes.
std::vector<int32_t> word_ids(const std::string& text) {
  std::vector<std::string> words;
  std::vector<int32_t> ids;
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    size_t i = 0;
    while (i < words.size() && words[i] != word) ++i;
    if (i == words.size()) words.push_back(word);
    ids.push_back(static_cast<int32_t>(i) + 300);
    word.clear();
  };
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += c;
      continue;
    }
    end_word();
    word = c;
    end_word();
  }
  end_word();
  return ids;
}

TEST(Compressibility, PlantedRepetitionIsSeen) {
  std::vector<int32_t> same(2000, 17);
  EXPECT_LT(least_compression_ratio(same, 1024), 0.05);
  std::vector<int32_t> phrase;
  for (int i = 0; i < 3000; ++i) phrase.push_back(400 + i % 6);
  EXPECT_LT(least_compression_ratio(phrase, 1024), 0.05);
  const std::vector<int32_t> shorter(phrase.begin(), phrase.begin() + 200);  // less than a chunk
  EXPECT_LT(least_compression_ratio(shorter, 1024), 0.05);
}

TEST(Compressibility, TextIsNot) {
  const std::string text = test::read_text(std::string(INGOT_SOURCE_DIR) + "/docs/numerics.md");
  std::vector<int32_t> bytes;
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  ASSERT_GT(bytes.size(), 4096u);
  EXPECT_GT(least_compression_ratio(bytes, 1024), 0.08);
  const std::vector<int32_t> words = word_ids(text);
  EXPECT_GT(least_compression_ratio(words, 1024), 0.08);
  EXPECT_GT(least_compression_ratio(words, 256), 0.08);
  for (const size_t n : {1u, 2u, 5u, 20u})
    EXPECT_GT(least_compression_ratio(std::span(words).first(n), 1024), 0.2) << n;
}

// Sums and steps of arithmetic repeat their shape, not their digits.
TEST(Compressibility, ArithmeticIsNot) {
  const Random random(1, RandomPurpose::test);
  std::string text;
  for (uint64_t i = 0; i < 400; ++i) {
    const uint64_t a = random.below(2 * i, 100), b = random.below(2 * i + 1, 100);
    text += std::to_string(a) + " + " + std::to_string(b) + " = " + std::to_string(a + b) + " no\n";
  }
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  EXPECT_GT(least_compression_ratio(ids, 256), 0.05);
}

TEST(Compressibility, OneBadStretchIsEnough) {
  const Random random(2, RandomPurpose::test);
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < 2048; ++i) ids.push_back(static_cast<int32_t>(random.below(i, 50000)));
  EXPECT_GT(least_compression_ratio(ids, 1024), 0.3);
  ids.insert(ids.end(), 1024, 5);
  EXPECT_LT(least_compression_ratio(ids, 1024), 0.05);
  // The short last chunk belongs to the one before it, and so dilutes nothing.
  ids.insert(ids.end(), 100, 5);
  EXPECT_LT(least_compression_ratio(ids, 1024), 0.05);
  EXPECT_EQ(least_compression_ratio({}, 1024), 1);
}

TEST(RareTokens, SharesOfTheHighestIds) {
  const std::vector<int32_t> ids = {0, 89, 90, 98, 99};
  EXPECT_DOUBLE_EQ(rare_token_share(ids, 100, 0.1), 0.6);
  EXPECT_DOUBLE_EQ(rare_token_share(ids, 100, 0.02), 0.4);
  EXPECT_EQ(rare_token_share({}, 100, 0.1), 0);
  const float likely = -1, unlikely = static_cast<float>(-std::log(100.0) - 2.1);
  const std::vector<float> logprob = {unlikely, likely, likely, unlikely, likely};
  EXPECT_DOUBLE_EQ(gibberish_share(ids, logprob, 100), 0.2);
}

}  // namespace
}  // namespace ingot::canary_test
