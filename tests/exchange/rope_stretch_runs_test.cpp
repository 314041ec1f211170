// --rope-scaling: YaRN lowers the loss of a trained model beyond the tokens it was trained with; what a model
// becomes; models and options that are refused.
#include <gtest/gtest.h>

#include "base/error.h"
#include "exchange/rope_stretch.h"
#include "infer/packed_model.h"
#include "support/imported.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/head_stats.h"
#include "train/trainer.h"

namespace ingot::test::rope_stretch_runs_test {

constexpr int64_t kTrained = 256, kLong = 1024;

/// A run of a small model with that position, trained with 256 tokens.
std::string train(const TempDir& dir, const std::string& name, const std::string& model, int64_t steps) {
  write_text(dir / "text.txt", tiny_text(12000));
  const std::string path = dir / name + ".toml";
  write_text(path, fmt::format(R"([run]
folder = "{0}/{1}"
[model]
width = 32
layers = 2
heads = 2
kv_heads = 2
hidden = 64
context = 256
{2}
[tokenizer]
kind = "characters"
[data]
folder = "{0}/data"
[[data.sources]]
name = "words"
path = "{0}/text.txt"
tail_validation = true
[[phases]]
steps = {3}
batch = 4
sequence = 256
lr = 1e-2
warmup = 0
[samples]
prompts = []
)",
                               dir.path(), name, model, steps));
  EXPECT_TRUE(Trainer(real_file_system(), load_recipe(path, {}), StartMode::resume_or_start).run().finished);
  return dir / name;
}

std::string refusal(const std::string& run, const std::string& option) {
  try {
    StoredModel m = open_stored_model(real_file_system(), run);
    stretch_rope(m, option);
  } catch (const Error& e) {
    return std::string(e.what()) + " " + e.hint();
  }
  return "not refused";
}

/// Mean loss of the tokens that stand at `first` or later in a text of 1,024.
double loss_from(const StoredModel& stored, const std::string& text, int64_t first) {
  const PackedModel packed(stored);
  const Tokenizer tokenizer = load_tokenizer(stored);
  std::vector<int32_t> ids;
  tokenizer.encode_to(text, {}, ids);
  HeadStats sums;
  for (int64_t at = 0; at + kLong < static_cast<int64_t>(ids.size()) && at < 6 * kLong; at += kLong) {
    data::Batch b;
    b.rows = 1, b.sequence_length = kLong, b.valid_targets = kLong - first;
    b.tokens.assign(ids.begin() + at, ids.begin() + at + kLong);
    b.targets.assign(ids.begin() + at + 1, ids.begin() + at + 1 + kLong);
    std::fill(b.targets.begin(), b.targets.begin() + first, data::kMasked);
    for (int32_t t = 0; t < kLong; ++t) b.positions.push_back(t);
    b.spans = {{0, kLong}};
    evaluate(packed.model(), b, sums);
  }
  return sums.loss();
}

class RopeStretch : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    train(*dir_, "run", "", 150);
  }
  static void TearDownTestSuite() { dir_.reset(); }
  static std::string run() { return *dir_ / "run"; }
  static StoredModel open() { return open_stored_model(real_file_system(), run()); }
  static inline std::unique_ptr<TempDir> dir_;
};

TEST_F(RopeStretch, YarnLowersTheLossBeyondTheTrainedContext) {
  StoredModel longer = open(), plain = open();
  stretch_rope(longer, "yarn:4");
  EXPECT_EQ(longer.config.context, kLong);
  EXPECT_EQ(longer.config.rope_scaling.kind, RopeScalingKind::yarn);
  EXPECT_EQ(longer.config.rope_scaling.factor, 4);
  EXPECT_EQ(longer.config.rope_scaling.original_context, kTrained);
  plain.config.context = kLong;
  const std::string text = tiny_text(3000, 2);
  const double with = loss_from(longer, text, kTrained), without = loss_from(plain, text, kTrained);
  EXPECT_LT(with, without - 0.02);
  // `eval` shows the same of whole windows.
  write_text(*dir_ / "long.txt", text);
  const auto eval = [&](const std::string& model, const std::string& option) {
    const ShellResult r =
        shell(*dir_, "$INGOT eval $DIR/" + model +
                         " --text $DIR/long.txt --sequence 1024 --json --rope-scaling " + option);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_EQ(r.json()["rope_scaling"], option);
    return r.json()["results"][0]["loss"].get<double>();
  };
  EXPECT_LT(eval("run", "yarn:4"), eval("run", "linear:4"));
}

TEST_F(RopeStretch, EveryCommandThatReadsAModelTakesIt) {
  const ShellResult short_one = shell(*dir_, "$INGOT eval $DIR/run --text $DIR/text.txt --sequence 1024");
  EXPECT_NE(short_one.err.find("the model's context is 256"), std::string::npos) << short_one.err;
  const ShellResult made = shell(
      *dir_, "$INGOT generate $DIR/run --prompt 'the river' --rope-scaling yarn:4 --max-tokens 400 --json");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.json()["rope_scaling"], "yarn:4");
  EXPECT_EQ(made.json()["samples"][0]["ids"].size(), 400u) << "longer than it was trained with";
  EXPECT_NE(made.err.find("trained with 256 tokens, the context is now 1024"), std::string::npos) << made.err;
  const ShellResult said =
      shell(*dir_, "echo 'the river' | $INGOT chat $DIR/run --rope-scaling yarn:4 --max-tokens 300");
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_NE(said.err.find("budget reached: 300 tokens"), std::string::npos) << said.err;
}

TEST_F(RopeStretch, AStretchedModelKeepsItsKindAndIsStretchedFromWhereItBegan) {
  StoredModel m = open();
  m.config.rope_scaling = {
      .kind = RopeScalingKind::yarn, .factor = 2, .original_context = 128, .beta_fast = 16};
  stretch_rope(m, "yarn:8");
  EXPECT_EQ(m.config.context, 1024);
  EXPECT_EQ(m.config.rope_scaling.factor, 8);
  EXPECT_EQ(m.config.rope_scaling.beta_fast, 16);
  stretch_rope(m, "none");
  EXPECT_EQ(m.config.rope_scaling.kind, RopeScalingKind::none);
  EXPECT_EQ(m.config.context, 1024) << "it never shrinks";
  StoredModel linear = open();
  linear.config.rope_scaling = {.kind = RopeScalingKind::linear, .factor = 2};
  stretch_rope(linear, "linear:4");
  EXPECT_EQ(linear.config.context, 512) << "128 tokens, at twice the distance, were 256";
  StoredModel llama = open();
  llama.config.rope_scaling = {.kind = RopeScalingKind::llama3, .factor = 8, .original_context = 64};
  EXPECT_THROW(stretch_rope(llama, "yarn:4"), Error);
}

TEST_F(RopeStretch, WhatCannotBeStretchedIsRefusedByName) {
  for (const char* option :
       {"yarn", "yarn:", "yarn:1", "yarn:0.5", "yarn:x", "yarn:4x", "yarn:nan", "yarn:1e9", "none:2"})
    EXPECT_NE(refusal(run(), option).find("expected a kind and a factor above 1"), std::string::npos)
        << option;
  EXPECT_NE(refusal(run(), "spiral:4").find("none, linear, llama3, yarn"), std::string::npos);
  EXPECT_NE(refusal(run(), "").find("none, linear, llama3, yarn"), std::string::npos);
  const std::string learned = train(*dir_, "learned", "position = \"learned\"", 1);
  EXPECT_NE(refusal(learned, "yarn:4").find("has no rotary positions"), std::string::npos);
  const std::string halves = train(*dir_, "halves", "half_truncated_rope = true", 1);
  EXPECT_NE(refusal(halves, "yarn:4").find("half_truncated_rope"), std::string::npos);
}

}  // namespace ingot::test::rope_stretch_runs_test
