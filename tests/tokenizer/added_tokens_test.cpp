// Added tokens as the tokenizers library treats them: found in normalized text as they read there, and
// numbered without holes. The expected ids are that library's (0.23).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot::test::added_tokens_test {

using nlohmann::json;

/// A tokenizer of bytes under NFC, and one added token after them.
json tokenizer_with(const std::string& content, int32_t id) {
  BpeTrainer trainer({.vocab_size = 256, .pattern = "gpt2"});
  const std::string_view documents[] = {"abc"};
  trainer.add(documents);
  json file = json::parse(write_tokenizer_json(trainer.train().spec()));
  file["normalizer"] = {{"type", "NFC"}};
  file["added_tokens"] = json::array({{{"id", id},
                                       {"content", content},
                                       {"single_word", false},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"normalized", true},
                                       {"special", false}}});
  return file;
}

TEST(AddedTokens, AreFoundInNormalizedTextAsTheyReadThere) {
  const std::string decomposed = "e\u0301x", composed = "\u00E9x";
  const Tokenizer t = Tokenizer::from_json(tokenizer_with(decomposed, 256).dump());
  for (const std::string& text : {decomposed, composed})
    EXPECT_EQ(t.encode(text), std::vector<int32_t>{256}) << text;
  EXPECT_EQ(t.decode(std::vector<int32_t>{256}), decomposed);
}

TEST(AddedTokens, AHoleBeforeTheirIdsIsRefused) {
  EXPECT_NO_THROW(Tokenizer::from_json(tokenizer_with("<x>", 256).dump()));
  try {
    Tokenizer::from_json(tokenizer_with("<x>", 300).dump(), "tokenizer.json");
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& e) {
    for (const char* part : {"'tokenizer.json'", "added_tokens[0].id", "300", "256"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

}  // namespace ingot::test::added_tokens_test
