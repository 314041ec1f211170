// Rows of conversations as documents: turns whose reasoning the template leaves out later, both modes of
// thinking, and preferences as two documents.
#include "train/encode_rows.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/support.h"

namespace ingot::test::encode_rows_test {
namespace {

class EncodeRows : public ::testing::Test {
 protected:
  EncodeRows() {
    recipe_.data.chat_template = "chatml-think";
    recipe_.data.sources.resize(1);
    recipe_.data.sources[0].name = "rows";
    recipe_.data.sources[0].conversations = true;
  }
  /// "text of each document, with what is in the loss in [ ]".
  std::vector<std::string> documents(const std::string& row) {
    data::TokenizerView view;
    const RowEncoder encoder(real_file_system(), recipe_, tokenizer_, "");
    encoder.describe(recipe_.data.sources[0], view);
    hash_ = view.conversation_hash;
    std::vector<data::ConversationTokens> tokens;
    view.encode_row(row, "rows.jsonl:1", tokens);
    std::vector<std::string> all;
    for (const data::ConversationTokens& d : tokens) {
      std::string& text = all.emplace_back();
      for (size_t i = 0; i < d.ids.size(); ++i) {
        if (d.in_loss[i] && (i == 0 || !d.in_loss[i - 1])) text += "[";
        if (!d.in_loss[i] && i > 0 && d.in_loss[i - 1]) text += "]";
        text += tokenizer_.token_bytes(d.ids[i]);
      }
      if (!d.in_loss.empty() && d.in_loss.back()) text += "]";
    }
    return all;
  }
  const std::vector<std::string> specials_ = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>",
                                              "</think>"};
  const Tokenizer tokenizer_ =
      Tokenizer::from_characters("abcdefghijklmnopqrstuvwxyz0123456789+\n ", specials_);
  Recipe recipe_;
  std::string hash_;
};

constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b",
                      "reasoning_content": "r1"},
                     {"role": "user", "content": "c"}, {"role": "assistant", "content": "d",
                      "reasoning_content": "r2"}]})";

TEST_F(EncodeRows, EachTurnKeepsItsReasoning) {
  const std::vector<std::string> plain = documents(kTwoTurns);
  const std::string hash = hash_;
  ASSERT_EQ(plain.size(), 1u);
  EXPECT_EQ(plain[0].find("r1"), std::string::npos) << "the template leaves it out: " << plain[0];
  recipe_.data.sources[0].each_turn = true;
  const std::vector<std::string> turns = documents(kTwoTurns);
  EXPECT_NE(hash_, hash);
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0],
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[<think>\nr1\n</think>\n\nb<|im_end|>]\n");
  EXPECT_EQ(
      turns[1],
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
      "<|im_start|>assistant\n[<think>\nr2\n</think>\n\nd<|im_end|>]\n");
}

TEST_F(EncodeRows, BothModesOfARow) {
  recipe_.data.sources[0].thinking = ThinkingRows::both;
  const std::vector<std::string> both = documents(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b",
          "reasoning_content": "r"}]})");
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0],
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[<think>\nr\n</think>\n\nb<|im_end|>]\n");
  EXPECT_EQ(both[1],
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n[b<|im_end|>]\n")
      << "what generation begins with is not in the loss";
  EXPECT_EQ(
      documents(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})")
          .size(),
      1u)
      << "a row without reasoning is one already";
}

TEST_F(EncodeRows, PreferencesAreTwoDocuments) {
  recipe_.data.sources[0].conversations = false;
  recipe_.data.sources[0].preferences = true;
  const std::vector<std::string> pair = documents(
      R"({"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}],
          "rejected": [{"role": "assistant", "content": "c"}]})");
  ASSERT_EQ(pair.size(), 2u);
  EXPECT_EQ(pair[0], "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n");
  EXPECT_EQ(pair[1], "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[c<|im_end|>]\n");
  const std::vector<std::string> plain = documents(R"({"prompt": "1+1", "completion": "2", "label": false})");
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(plain[0], "");
  EXPECT_EQ(plain[1], "1+1[2<|endoftext|>]");
}

}  // namespace
}  // namespace ingot::test::encode_rows_test
