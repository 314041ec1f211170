// A run of several kinds of phases in one folder: text, then conversations, then preferences. What each
// trains on, and that a run which is interrupted anywhere and resumed ends with the bits of an undisturbed
// one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "post/preference/held_out.h"
#include "post/preference/preference_source.h"
#include "post/register.h"
#include "report/run_record.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/phase_kind.h"
#include "train/trainer.h"

namespace ingot::test::phases_runs_test {
namespace {

using Json = nlohmann::json;

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

Json message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

/// Additions, answered with reasoning; two of ten with two turns.
std::string conversations(int n) {
  std::string rows;
  for (int i = 0; i < n; ++i) {
    const int a = i % 7, b = i % 5;
    Json reply = message("assistant", std::to_string(a + b));
    reply["reasoning_content"] = fmt::format("{} and {} are {}", a, b, a + b) + std::string(i % 9, '.');
    Json all = {message("user", fmt::format("{}+{}", a, b)), reply};
    for (int k = 0; k < 2 && i % 5 == 0; ++k) all.push_back(Json(all[static_cast<size_t>(k)]));
    rows += Json{{"messages", all}}.dump() + "\n";
  }
  return rows;
}

/// Sums that are right against sums that are wrong.
std::string preferences(int n) {
  std::string rows;
  for (int i = 0; i < n; ++i) {
    const int a = i % 7, b = i % 5;
    rows += Json{{"prompt", {message("user", fmt::format("{}+{}", a, b))}},
                 {"chosen", {message("assistant", std::to_string(a + b))}},
                 {"rejected", {message("assistant", fmt::format("{} or so", a + b + 1))}}}
                .dump() +
            "\n";
  }
  return rows;
}

class Observer final : public RunObserver {
 public:
  explicit Observer(int64_t stop) : stop_(stop) {}
  bool wants_tensors() const override { return false; }
  void tensor(const std::string&, const Tensor&) override {}
  void enters(StepPart part) override {
    if (part == StepPart::optimizer && ++steps_ == stop_) Trainer::interrupt();
  }

 private:
  int64_t stop_, steps_ = 0;
};

}  // namespace

class Phases : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    register_post();
    folder_ = std::make_unique<TempDir>();
    write_text(*folder_ / "text.txt", tiny_text(600));
    write_text(*folder_ / "chat.jsonl", conversations(60));
    write_text(*folder_ / "pairs.jsonl", preferences(50));
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static Recipe recipe(const std::string& run, const std::vector<std::string>& more = {}) {
    const std::string text = fmt::format(R"([run]
folder = "{0}/{1}"
[model]
preset = "llama-small"
width = 16
layers = 1
heads = 2
kv_heads = 1
head_width = 8
hidden = 24
context = 96
[tokenizer]
kind = "characters"
special_tokens = ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
[data]
folder = "{0}/data"
chat_template = "chatml-think"
[[data.sources]]
name = "words"
path = "{0}/text.txt"
documents = "blank_line"
validation_fraction = 0.2
[[data.sources]]
name = "sums"
path = "{0}/chat.jsonl"
conversations = true
validation_fraction = 0
[[data.sources]]
name = "pairs"
path = "{0}/pairs.jsonl"
preferences = true
validation_fraction = 0.3
[optimizer]
matrices = "muon"
[[phases]]
name = "pretrain"
steps = 4
batch = 2
sequence = 32
warmup = 0
[[phases.weights]]
source = "words"
[[phases]]
name = "sft"
kind = "chat"
steps = 5
batch = 2
sequence = 64
warmup = 0
[phases.chat]
[[phases]]
name = "prefer"
kind = "preference"
steps = 6
batch = 2
micro_batch = 1
sequence = 80
lr = 3e-3
warmup = 0
[phases.preference]
loss = "dpo"
beta = 0.5
[phases.optimizer]
state = "reset"
momentum = 0.0
[checkpoint]
every = 4
[evaluation]
every = 0
[samples]
prompts = []
)",
                                         folder_->path(), run);
    write_text(*folder_ / (run + ".toml"), text);
    return load_recipe(*folder_ / (run + ".toml"), more);
  }
  static TrainResult run(const Recipe& r, int64_t stop = 0) {
    Trainer trainer(real_file_system(), r, StartMode::resume_or_start);
    Observer observer(stop);
    trainer.observe(&observer);
    return trainer.run();
  }
  static std::vector<MetricRow> rows_of(const std::string& run) {
    return read_metrics(real_file_system(), (*folder_ / run) + "/" + run_files::kMetrics);
  }
  static inline std::unique_ptr<TempDir> folder_;
};

TEST_F(Phases, OfEveryKindMakeOneRunThatResumesAnywhere) {
  EXPECT_TRUE(run(recipe("whole")).finished);
  const std::vector<MetricRow> all = rows_of("whole");
  ASSERT_EQ(all.size(), 15u);
  EXPECT_EQ(all[8].scalar("preference/margin"), nullptr);
  const auto at = [&](size_t row, const char* name) {
    const double* value = all[row].scalar(name);
    EXPECT_NE(value, nullptr) << name;
    return value != nullptr ? *value : 0;
  };
  // The reference is the model with which the phase begins, in the bits of its first forward pass.
  EXPECT_EQ(at(9, "preference/margin"), 0);
  EXPECT_EQ(at(9, "preference/accuracy"), 0.5);
  EXPECT_EQ(at(9, "preference/drift_chosen"), 0);
  EXPECT_DOUBLE_EQ(at(9, "objective"), std::log(2.0));
  EXPECT_GT(at(14, "preference/margin"), 0.05);
  EXPECT_GT(at(14, "val/pairs/margin"), 0.02);
  EXPECT_GT(at(14, "val/pairs/accuracy"), 0.7);
  EXPECT_GT(at(14, "preference/accuracy"), 0.8);
  EXPECT_LT(at(14, "objective"), std::log(2.0));
  for (const int64_t stop : {3, 4, 6, 9, 10, 13, 15}) {  // the last before its validation
    const std::string name = fmt::format("stopped{}", stop);
    EXPECT_FALSE(run(recipe(name), stop).finished);
    EXPECT_TRUE(run(recipe(name)).finished);
    EXPECT_EQ(difference(*folder_ / "whole", *folder_ / name), "") << name;
  }
}

TEST_F(Phases, EveryLossTrainsAndPrefersTheChosen) {
  for (const char* loss : {"ipo", "apo_zero", "apo_down", "kto", "orpo", "simpo"}) {
    SCOPED_TRACE(loss);
    const std::string name = std::string("loss_") + loss;
    const bool orpo = std::string(loss) == "orpo";
    ASSERT_TRUE(
        run(recipe(name, {std::string("--phases.2.preference.loss=") + loss,
                          orpo ? "--phases.2.preference.lambda=1" : "--phases.2.preference.beta=0.5",
                          orpo ? "--phases.2.preference.beta=0.1" : "--phases.2.preference.lambda=0.1"}))
            .finished);
    const std::vector<MetricRow> all = rows_of(name);
    ASSERT_EQ(all.size(), 15u);
    EXPECT_LT(*all[14].scalar("objective"), *all[9].scalar("objective"));
    EXPECT_GT(*all[14].scalar("preference/margin"), *all[9].scalar("preference/margin"));
    EXPECT_EQ(all[14].scalar("preference/kl") != nullptr, std::string(loss) == "kto");
  }
}

/// Rows that say of one answer whether it is good: a pair whose other side is absent.
TEST_F(Phases, KtoTakesRowsOfOneAnswer) {
  std::string rows;
  for (int i = 0; i < 40; ++i)
    rows += Json{{"prompt", fmt::format("{} plus {} is ", i % 7, i % 5)},
                 {"completion", i % 3 == 0 ? "not known" : std::to_string(i % 7 + i % 5)},
                 {"label", i % 3 != 0}}
                .dump() +
            "\n";
  write_text(*folder_ / "labels.jsonl", rows);
  const std::vector<std::string> more = {"--data.sources.2.path=" + (*folder_ / "labels.jsonl"),
                                         "--data.folder=" + (*folder_ / "labels"),
                                         "--phases.2.preference.loss=kto"};
  ASSERT_TRUE(run(recipe("labels_run", more)).finished);
  const std::vector<MetricRow> all = rows_of("labels_run");
  const MetricRow &first = all[9], &last = all[14];
  EXPECT_EQ(first.scalar("preference/accuracy"), nullptr) << "no row has both";
  EXPECT_EQ(*first.scalar("preference/reward_chosen"), 0);
  EXPECT_GT(*last.scalar("preference/reward_chosen"), *last.scalar("preference/reward_rejected"));
  EXPECT_LT(*last.scalar("objective"), *first.scalar("objective"));
}

TEST_F(Phases, AResumeWithoutItsReferenceIsRefused) {
  EXPECT_FALSE(run(recipe("gone"), 12).finished);
  const std::string file = (*folder_ / "gone") + "/reference/phase-3.safetensors";
  ASSERT_TRUE(real_file_system().exists(file));
  real_file_system().remove_all(file);
  EXPECT_NE(
      error_of([&] { run(recipe("gone")); }).find("is gone: the log-probabilities of the phase's reference"),
      std::string::npos);
}

TEST_F(Phases, BadOnesAreRefusedByName) {
  const auto refused = [&](std::vector<std::string> more) { return error_of([&] { recipe("bad", more); }); };
  EXPECT_NE(refused({"--phases.0.kind=rhyme"}).find("'rhyme' is no kind of phases; there are: chat"),
            std::string::npos);
  EXPECT_NE(refused({"--phases.2.kind=text"}).find("is of kind preference or own_preference, and this"),
            std::string::npos);
  EXPECT_NE(refused({"--phases.0.kind=chat"}).find("needs its section [phases.chat]"), std::string::npos);
  EXPECT_NE(refused({"--phases.2.preference=none"}).find("needs its section [phases.preference]"),
            std::string::npos);
  EXPECT_NE(refused({"--phases.2.z_coefficient=0.1"}).find("have no z-loss"), std::string::npos);
  EXPECT_NE(refused({"--memory.head=gradient"}).find("use store or recompute"), std::string::npos);
  EXPECT_NE(refused({"--data.sources.2.preferences=false"}).find("one needs preferences = true"),
            std::string::npos);
  EXPECT_NE(refused({"--model.mtp.depths=1"}).find("have no preference"), std::string::npos);
}

TEST_F(Phases, RowsOfConversationsArePackedWhole) {
  const Recipe r = recipe("packed");
  const PreparedData data = prepare_data(real_file_system(), r);
  PhaseSampler sampler(r, data);
  sampler.advance();
  const data::Sampler::PackedSource packed = sampler.rows().packed(1);
  EXPECT_GT(packed.documents, 50);
  EXPECT_EQ(packed.dropped, 0);
  EXPECT_GT(packed.shortened, 0);
  EXPECT_LT(packed.reasoning_left, packed.reasoning);
  const RowPlan plan = plan_rows(r, data, 1);
  ASSERT_EQ(plan.lines.size(), 1u);
  EXPECT_NE(plan.lines[0].find("longer than a row keep"), std::string::npos) << plan.lines[0];
  ASSERT_EQ(plan.warnings.size(), 1u);
  EXPECT_NE(plan.warnings[0].find("makes 5 steps"), std::string::npos) << plan.warnings[0];
  for (int64_t step = sampler.first_step(); step < sampler.end_step(); ++step) {
    const data::Batch batch = sampler.batch(step);
    for (const data::DocumentPiece& p : batch.pieces) {
      if (p.document < 0) continue;
      const std::span<const int32_t> ids(batch.tokens.data() + p.begin, static_cast<size_t>(p.end - p.begin));
      const std::string text = data.tokenizer.decode(ids);
      EXPECT_TRUE(text.starts_with("<|im_start|>user\n")) << text;
      EXPECT_TRUE(text.ends_with("<|im_end|>\n")) << text;
    }
  }
}

TEST_F(Phases, TextStandsInRowsBesideConversations) {
  const auto weights = [](const char* other) {
    return fmt::format(
        "--phases.1.weights=[{{source = \"sums\", weight = 0.5}}, {{source = \"{}\", weight = 0.5}}]", other);
  };
  EXPECT_NE(error_of([&] {
              recipe("bad", {weights("pairs")});
            }).find("'pairs' has no rows for a phase of kind chat"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              recipe("bad", {"--phases.1.weights=[{source = \"words\"}]"});
            }).find("no source has rows"),
            std::string::npos);
  const Recipe r = recipe("replay", {weights("words"), "--phases.1.steps=20"});
  const PreparedData data = prepare_data(real_file_system(), r);
  PhaseSampler sampler(r, data);
  sampler.advance();
  int64_t text_rows = 0, rows = 0;
  for (int64_t step = sampler.first_step(); step < sampler.end_step(); ++step) {
    const data::Batch batch = sampler.batch(step);
    for (int64_t row = 0; row < batch.rows; ++row) {
      const auto begin = static_cast<size_t>(row * batch.sequence_length),
                 n = static_cast<size_t>(batch.sequence_length);
      const bool text = sampler.rows()
                            .source(static_cast<size_t>(batch.origins[static_cast<size_t>(row)].source))
                            .source() == "words";
      const auto targets = std::span(batch.targets).subspan(begin, n);
      EXPECT_EQ(data.tokenizer.decode(std::span(batch.tokens).subspan(begin, n)).find("<|im_start|>") ==
                    std::string::npos,
                text);
      const auto learned = std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
      EXPECT_GT(learned, 0);
      if (text) {
        EXPECT_GT(learned, batch.sequence_length / 2) << "all but the ends of documents";
      }
      text_rows += text, ++rows;
    }
  }
  EXPECT_EQ(rows, 40);
  EXPECT_NEAR(static_cast<double>(text_rows), 20, 1);
  const RowPlan plan = plan_rows(r, data, 1);
  ASSERT_EQ(plan.lines.size(), 2u);
  EXPECT_NE(plan.lines[1].find("windows, 100 % full; 50 % of the phase"), std::string::npos) << plan.lines[1];
  EXPECT_FALSE(run(r, 10).finished);
  EXPECT_TRUE(run(r).finished);
  EXPECT_TRUE(run(recipe("replay_whole", {weights("words"), "--phases.1.steps=20"})).finished);
  EXPECT_EQ(difference(*folder_ / "replay", *folder_ / "replay_whole"), "");
}

TEST_F(Phases, PairsStandTogetherAndMismatchesAreOthersAnswers) {
  const Recipe r = recipe("pairs");
  const PreparedData data = prepare_data(real_file_system(), r);
  PhaseSampler sampler(r, data);
  sampler.advance(), sampler.advance();
  data::Batch batch = sampler.batch(sampler.first_step());
  const PairCount n = number_pairs(batch);
  EXPECT_EQ(n.sequences, 2 * n.pairs);
  EXPECT_GE(n.pairs, 2);
  std::map<int32_t, std::vector<std::string>> text;
  for (const data::DocumentPiece& p : batch.pieces)
    if (p.document >= 0)
      text[batch.columns.sequence[static_cast<size_t>(p.begin)] / 2].push_back(
          data.tokenizer.decode({batch.tokens.data() + p.begin, static_cast<size_t>(p.end - p.begin)}));
  for (const auto& [pair, sides] : text) {
    ASSERT_EQ(sides.size(), 2u);
    EXPECT_EQ(sides[0].substr(0, 20), sides[1].substr(0, 20)) << "one prompt";
    EXPECT_NE(sides[1].find("or so"), std::string::npos) << "the rejected one is second";
    EXPECT_EQ(sides[0].find("or so"), std::string::npos);
  }
  int64_t sequences = 0;
  const data::Batch other = mismatched_batch(batch, 2, sequences);
  EXPECT_EQ(sequences, n.sequences);
  EXPECT_EQ(other.rows % 2, 0);
  EXPECT_EQ(other.valid_targets, batch.valid_targets) << "each answer is behind another prompt";
}

TEST_F(Phases, AnInterruptEndsTheMeasureOfHeldOutPairsBetweenRows) {
  const Recipe given = recipe("held_out");
  const PreparedData data = prepare_data(real_file_system(), given);
  const RunRanks ranks(given, nullptr);
  TrainEngine engine(with_vocabulary(given, data), ranks);
  PhaseSampler sampler(engine.recipe(), data);
  sampler.advance(), sampler.advance();
  const HeldOutPairs pairs({real_file_system(), engine, data, sampler});
  ReferenceLogprobs reference;
  pairs.add_reference(reference);
  int asked = 0;
  MetricRow row;
  const auto measured = [&](int stop_at) {
    asked = 0;
    return pairs.measure(&reference, true, row, [&] { return ++asked == stop_at; });
  };
  EXPECT_FALSE(measured(1));
  EXPECT_EQ(row.scalar("val/pairs/accuracy"), nullptr);
  EXPECT_TRUE(measured(0));
  const int rows = asked;
  ASSERT_GE(rows, 2);
  EXPECT_NE(row.scalar("val/pairs/accuracy"), nullptr);
  EXPECT_FALSE(measured(rows));
  EXPECT_EQ(asked, rows);
}

}  // namespace ingot::test::phases_runs_test
