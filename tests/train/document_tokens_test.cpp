// Begin-of-text and special tokens in training data: shards, completions, samples, fine-tuning, records,
// refusals.
#include <gtest/gtest.h>

#include "data/dataset.h"
#include "exchange/control_tokens.h"
#include "report/run_record.h"
#include "support/imported.h"
#include "train/prepare.h"

namespace ingot::test::document_tokens_test {

std::string recipe_of(const TempDir& dir, const std::string& data_keys) {
  return fmt::format(R"([run]
folder = "{0}/run"
[model]
preset = "llama-small"
width = 16
layers = 1
heads = 2
kv_heads = 1
head_width = 8
hidden = 24
context = 64
[tokenizer]
path = "{1}"
[data]
folder = "{0}/data"
{2}
[[data.sources]]
name = "words"
path = "{0}/text.txt"
documents = "blank_line"
validation_fraction = 0.2
[[phases]]
steps = 2
warmup = 0
batch = 2
sequence = 16
[samples]
prompts = ["the "]
tokens = 2
)",
                     dir.path(), fixture("generation/llama"), data_keys);
}

/// The first tokens of all documents of a dataset, and how often `id` occurs in it.
struct Seen {
  std::vector<int32_t> first;
  int64_t count = 0;
};
Seen look(const std::string& folder, int32_t id) {
  Seen seen;
  const auto split = data::Dataset::open(real_file_system(), folder).train();
  std::vector<int32_t> all(static_cast<size_t>(split->tokens()));
  split->read(0, all);
  for (int64_t d = 0; d < split->documents(); ++d)
    seen.first.push_back(all[static_cast<size_t>(split->document_begin(d))]);
  seen.count = std::count(all.begin(), all.end(), id);
  return seen;
}

class DocumentTokensTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(dir_ / "text.txt", tiny_text(800) + "\n\nthe <|eot_id|> river <|eot_id|>\n");
  }
  ShellResult run(const std::string& verb, const std::string& keys) {
    write_text(dir_ / "recipe.toml", recipe_of(dir_, keys));
    return shell(dir_, "$INGOT " + verb + " $DIR/recipe.toml");
  }
  TempDir dir_;
};

TEST_F(DocumentTokensTest, ShardsBeginWithTheTokenWhereAskedFor) {
  const ShellResult plain = run("data", "");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  Seen seen = look(dir_ / "data/words", 302);
  EXPECT_EQ(std::count(seen.first.begin(), seen.first.end(), 300), 0);
  EXPECT_EQ(seen.count, 0) << "text is text";
  EXPECT_NE(plain.err.find("spells special tokens 2 times, e.g. <|eot_id|>"), std::string::npos) << plain.err;
  EXPECT_NE(plain.err.find("data.special_tokens = \"parse\""), std::string::npos) << plain.err;
  EXPECT_NE(plain.err.find("data.begin_of_text = true"), std::string::npos) << plain.err;
  EXPECT_EQ(run("data", "").err.find("warning"), std::string::npos) << "only where data is made";
  const ShellResult other = run("data", "begin_of_text = true");
  EXPECT_EQ(other.exit_code, 1) << "a folder of other documents is refused";
  EXPECT_NE(other.err.find("made of other text, options or tokenizer"), std::string::npos) << other.err;
  ASSERT_EQ(shell(dir_, "rm -r $DIR/data").exit_code, 0);

  const ShellResult both = run("run", "begin_of_text = true\nspecial_tokens = \"parse\"");
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(both.err.find("special tokens"), std::string::npos) << both.err;
  seen = look(dir_ / "data/words", 302);
  EXPECT_EQ(std::count(seen.first.begin(), seen.first.end(), 300), static_cast<int64_t>(seen.first.size()));
  EXPECT_EQ(seen.count + (seen.count == 0 ? 2 : 0), 2) << "tokens now, unless the document is held out";
  const RunRecord record = read_run_record(real_file_system(), dir_ / "run");
  const auto says = [&](const char* name) { return value_text(*record.find("data", name)); };
  EXPECT_EQ(says("token before documents"), "<|begin_of_text|>");
  EXPECT_EQ(says("token after documents"), "<|end_of_text|>");
  EXPECT_EQ(says("special tokens in text"), "parse");
  // Generation begins as its documents did.
  const nlohmann::json made = shell(dir_, "$INGOT generate $DIR/run --max-tokens 1 --json").json();
  EXPECT_EQ(made["prompt_ids"][0], 300);
  EXPECT_EQ(made["end_tokens"][0]["id"], 301);
  // So does what is made from it.
  ASSERT_EQ(shell(dir_, "$INGOT upcycle $DIR/run $DIR/mean").exit_code, 0);
  EXPECT_EQ(shell(dir_, "$INGOT generate $DIR/mean --max-tokens 1 --json").json()["prompt_ids"][0], 300);
  EXPECT_EQ(run("data", "begin_of_text = true\nend_of_text_first = true").exit_code, 1);
}

TEST_F(DocumentTokensTest, ARunWithoutTheTokenGeneratesWithoutIt) {
  ASSERT_EQ(run("run", "").exit_code, 0);
  const nlohmann::json made = shell(dir_, "$INGOT generate $DIR/run --max-tokens 1 --json").json();
  EXPECT_TRUE(made["begin_token"].is_null());
  EXPECT_NE(made["prompt_ids"][0], 300);
  ASSERT_EQ(shell(dir_, "$INGOT upcycle $DIR/run $DIR/mixture").exit_code, 0);
  EXPECT_TRUE(
      shell(dir_, "$INGOT generate $DIR/mixture --max-tokens 1 --json").json()["begin_token"].is_null());
}

TEST_F(DocumentTokensTest, FinetuneTrainsOnWhatTransformersWouldGive) {
  std::string rows;
  for (int i = 0; i < 6; ++i)
    rows += "{\"prompt\": \"<|eot_id|>the river\", \"completion\": \" runs<|eot_id|>\"}\n";
  write_text(dir_ / "rows.jsonl", rows);
  ASSERT_EQ(shell(dir_, "$INGOT import " + fixture("generation/llama") + " $DIR/in").exit_code, 0);
  const std::string command = "$INGOT finetune $DIR/in $DIR/rows.jsonl --batch 2 --sequence 64 --run $DIR/";
  const ShellResult text = shell(dir_, command + "text"), tokens = shell(dir_, command + "tokens --special");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  ASSERT_EQ(tokens.exit_code, 0) << tokens.err;
  const std::string kWarning = "the text spells special tokens 12 times";
  EXPECT_NE(text.err.find(kWarning), std::string::npos) << text.err;
  EXPECT_EQ(text.err.find(kWarning), text.err.rfind(kWarning)) << "once";
  EXPECT_NE(text.err.find("--special"), std::string::npos);
  EXPECT_EQ(tokens.err.find("spells"), std::string::npos) << tokens.err;
  EXPECT_EQ(look(dir_ / "text/data/finetune", 302).count, 0);
  const Seen seen = look(dir_ / "tokens/data/finetune", 302);
  EXPECT_EQ(seen.count, 12);
  EXPECT_EQ(seen.first, std::vector<int32_t>(6, 300)) << "behind the begin token";
  // The begin token and the prompt are not in the loss.
  const auto split = data::Dataset::open(real_file_system(), dir_ / "tokens/data/finetune").train();
  EXPECT_FALSE(split->in_loss(0));
  EXPECT_FALSE(split->in_loss(1));
  EXPECT_TRUE(split->in_loss(split->document_begin(1) - 1));
}

}  // namespace ingot::test::document_tokens_test
