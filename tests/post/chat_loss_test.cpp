// What the loss of a conversation depends on: the answers, and what stands before them. A user's turn that no
// answer follows, and another conversation in the same row, change no bit of loss or gradient; a turn before
// an answer does.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "data/sequence_rows.h"
#include "support/small_models.h"
#include "support/support.h"
#include "train/encode_rows.h"
#include "train/step.h"

namespace ingot::test::chat_loss_test {
namespace {

struct Trained {
  double loss = 0;
  int64_t targets = 0;
  std::vector<float> gradients;
  bool same_bits(const Trained& o) const {
    return loss == o.loss && targets == o.targets && gradients.size() == o.gradients.size() &&
           std::memcmp(gradients.data(), o.gradients.data(), gradients.size() * sizeof(float)) == 0;
  }
};

class ChatLoss : public ::testing::TestWithParam<std::string> {
 protected:
  ChatLoss() {
    recipe_.data.chat_template = "chatml-think";
    recipe_.data.sources.resize(1);
    recipe_.data.sources[0].name = "rows";
    recipe_.data.sources[0].conversations = true;
  }
  /// A row of the messages, by turns: user, assistant, user, ...
  data::ConversationTokens encoded(const std::vector<std::string>& turns) const {
    nlohmann::json row;
    for (size_t i = 0; i < turns.size(); ++i)
      row["messages"].push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", turns[i]}});
    data::TokenizerView view;
    RowEncoder(real_file_system(), recipe_, tokenizer_, "").describe(recipe_.data.sources[0], view);
    std::vector<data::ConversationTokens> documents;
    view.encode_row(row.dump(), "rows.jsonl:1", documents);
    return documents.at(0);
  }
  /// A step on one row that holds the documents, in the head mode that phases of kind chat have.
  Trained trained(const std::vector<data::ConversationTokens>& documents) const {
    std::vector<std::vector<uint8_t>> in_loss;
    for (const data::ConversationTokens& d : documents)
      in_loss.emplace_back(d.in_loss.begin(), d.in_loss.end());
    std::vector<data::TokenSequence> sequences;
    for (size_t i = 0; i < documents.size(); ++i)
      sequences.push_back({.tokens = documents[i].ids, .in_loss = in_loss[i]});
    const data::Batch batch = data::pack_sequences(sequences, {.budget = 128});
    EXPECT_EQ(batch.rows, 1);
    const std::unique_ptr<Model> model = small_model(GetParam(), Precision::f32());
    GradientBuffer gradients(model->decoder().table(), {}, DType::f32);
    StepRunner runner(*model, gradients);
    const StepStats stats = runner.run(batch, {.head = HeadMode::gradient});
    gradients.finish_step();
    Trained t{stats.nll, stats.valid, {}};
    for (int i = 0; i < model->decoder().table().size(); ++i) {
      if (!model->decoder().table()[i].trainable) continue;
      const Tensor g = gradients.gradient(i);
      t.gradients.insert(t.gradients.end(), g.as<float>(), g.as<float>() + g.numel());
    }
    return t;
  }
  const std::vector<std::string> specials_ = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>",
                                              "</think>"};
  const Tokenizer tokenizer_ =
      Tokenizer::from_characters("abcdefghijklmnopqrstuvwxyz0123456789+\n ", specials_);
  Recipe recipe_;
};

}  // namespace

TEST_P(ChatLoss, ATurnThatNoAnswerFollowsChangesNothing) {
  const Trained one = trained({encoded({"1+2", "it is 3", "thanks a lot"})}),
                edited = trained({encoded({"1+2", "it is 3", "now 4+5 ok"})});
  EXPECT_EQ(one.targets, 8);  // seven characters and the end of the turn
  EXPECT_TRUE(one.same_bits(edited));
}

TEST_P(ChatLoss, AnotherConversationInTheRowChangesNothing) {
  const data::ConversationTokens own = encoded({"1+2", "it is 3"});
  data::ConversationTokens other = encoded({"2+2", "4"}), edited = encoded({"9+9", "4"});
  for (auto* d : {&other, &edited}) d->in_loss.assign(d->ids.size(), false);
  EXPECT_TRUE(trained({own, other}).same_bits(trained({own, edited})));
}

TEST_P(ChatLoss, WhatAnAnswerFollowsChangesIt) {
  const Trained one = trained({encoded({"1+2", "it is 3", "thanks"})}),
                before = trained({encoded({"7+8", "it is 3", "thanks"})}),
                answer = trained({encoded({"1+2", "it is 4", "thanks"})});
  EXPECT_EQ(one.targets, before.targets);
  EXPECT_NE(one.loss, before.loss);
  EXPECT_FALSE(one.same_bits(before));
  EXPECT_NE(one.loss, answer.loss);
  // And were the user's words in the loss, the first test could not pass.
  data::ConversationTokens all = encoded({"1+2", "it is 3", "thanks a lot"}),
                           edited = encoded({"1+2", "it is 3", "now 4+5 ok"});
  for (auto* d : {&all, &edited}) d->in_loss.assign(d->ids.size(), true);
  EXPECT_FALSE(trained({all}).same_bits(trained({edited})));
}

INSTANTIATE_TEST_SUITE_P(Models, ChatLoss, ::testing::Values("llama", "zaya"));

}  // namespace ingot::test::chat_loss_test
