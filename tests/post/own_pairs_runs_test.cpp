// A phase of kind "own_preference": pairs of the model's own replies, whose recorded log-probabilities are
// the reference's, bit for bit; resumed runs train on the same pairs.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "post/preference/own_pairs.h"
#include "report/metrics.h"
#include "support/first_step.h"
#include "support/rl_run.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::own_pairs_runs_test {
namespace {

Rollout reply(double reward, FinishReason finish = FinishReason::stop_id, bool left_out = false) {
  Rollout r;
  r.ids = {static_cast<int32_t>(reward * 10)};
  r.recorded = {-1}, r.forced = {0};
  r.reward = reward, r.finish = finish, r.left_out = left_out;
  return r;
}

TEST(PairOf, TakesTheFirstBestAndTheFirstWorst) {
  RolloutGroup g;
  g.rollouts = {reply(0.5), reply(1), reply(0), reply(1), reply(0)};
  g.rollouts[1].text = "first best", g.rollouts[2].text = "first worst";
  const std::vector<Rollout> pair = pair_of(g);
  ASSERT_EQ(pair.size(), 2u);
  EXPECT_EQ(pair[0].text, "first best");
  EXPECT_EQ(pair[1].text, "first worst");
}

TEST(PairOf, OfEqualRewardsTheLikelierReplyIsTheBetter) {
  RolloutGroup g;
  g.rollouts = {reply(1), reply(1), reply(0), reply(0)};
  g.rollouts[0].ids = {1, 2}, g.rollouts[0].recorded = {-0.5F, -0.75F}, g.rollouts[0].forced = {0, 0};
  g.rollouts[1].ids = {1, 2}, g.rollouts[1].recorded = {-0.5F, 0}, g.rollouts[1].forced = {0, 1};
  g.rollouts[3].recorded = {-2};
  const std::vector<Rollout> pair = pair_of(g);
  EXPECT_EQ(pair[0].recorded, g.rollouts[1].recorded) << "a mean, of drawn tokens alone";
  EXPECT_EQ(pair[1].recorded, g.rollouts[3].recorded);
}

TEST(PairOf, LeavesOutWhatWasCutOrNotJudged) {
  RolloutGroup g;
  EXPECT_TRUE(pair_of(g).empty());
  g.rollouts = {reply(1), reply(1)};
  EXPECT_TRUE(pair_of(g).empty()) << "one reward";
  g.rollouts = {reply(1), reply(0, FinishReason::max_tokens), reply(0, FinishReason::stop_id, true)};
  EXPECT_TRUE(pair_of(g).empty());
  g.rollouts.push_back(reply(0.25));
  EXPECT_EQ(pair_of(g)[1].reward, 0.25);
}

struct OwnPairs : ::testing::Test {
  static void SetUpTestSuite() { register_rl_environments(); }
  OwnPairs() { write_rl_rows(folder_.path()); }

  /// The recipe of rl_run.h, its second phase on pairs of replies to "say_test".
  Recipe recipe(const std::string& run, std::vector<std::string> more = {}) {
    std::string text = rl_recipe(folder_.path(), run, 10);
    text = text.substr(0, text.find("[[phases]]\nname = \"rl\"")) +
           "[[phases]]\nname = \"prefer\"\nkind = \"own_preference\"\nsteps = 10\nsequence = 64\nlr = 1e-2\n"
           "schedule = \"constant\"\nwarmup = 0\n[phases.preference]\n[phases.own_pairs]\nproblems = "
           "40\nsamples = 6\npairs = 4\nmax_tokens = 6\n[[phases.own_pairs.environments]]\nname = "
           "\"say_test\"\n[checkpoint]\nevery = 25\nkeep_last = 0\n[samples]\nprompts = []\n";
    write_text(folder_ / (run + ".toml"), text);
    return load_recipe(folder_ / (run + ".toml"), more);
  }
  /// Runs to the end or to step `stop`; the rows of the second phase.
  std::vector<MetricRow> run(const Recipe& r, int64_t stop = 0) {
    FirstStep observer(stop > 0 ? stop : 1000);
    Trainer trainer(real_file_system(), r, StartMode::resume_or_start);
    trainer.observe(&observer);
    EXPECT_EQ(trainer.run().finished, stop == 0);
    std::vector<MetricRow> rows = read_metrics(real_file_system(), r.run.folder + "/metrics.jsonl");
    std::erase_if(rows, [](const MetricRow& row) { return row.scalar("preference/margin") == nullptr; });
    return rows;
  }
  std::string refusal(const std::vector<std::string>& more) {
    try {
      run(recipe("refused", more));
    } catch (const Error& e) {
      return std::string(e.what()) + "; " + e.hint();
    }
    return "it ran";
  }
  const TempDir folder_;
};

TEST_F(OwnPairs, BeginAtTheReferenceExactlyAndLearn) {
  const std::vector<MetricRow> rows = run(recipe("learns"));
  ASSERT_EQ(rows.size(), 10u);
  // The reference is what sampling recorded: were one bit another, the margin would not be 0.
  EXPECT_EQ(*rows[0].scalar("preference/margin"), 0);
  EXPECT_EQ(*rows[0].scalar("preference/accuracy"), 0.5);
  EXPECT_EQ(*rows[0].scalar("preference/drift_chosen"), 0);
  EXPECT_EQ(*rows[0].scalar("preference/drift_rejected"), 0);
  EXPECT_GT(*rows[0].scalar("preference/logprob_chosen"), -10);
  EXPECT_LT(*rows[0].scalar("preference/logprob_chosen"), 0);
  EXPECT_GT(*rows[9].scalar("preference/margin"), 0.1);
  EXPECT_GT(*rows[9].scalar("preference/accuracy"), 0.5);
}

TEST_F(OwnPairs, ResumeInsideAndAtTheBeginning) {
  run(recipe("whole"));
  for (const int64_t stop : {40, 41, 45}) {  // before any pair exists, after the first step, later
    const std::string name = "stopped" + std::to_string(stop);
    run(recipe(name), stop);
    run(recipe(name));
    EXPECT_EQ(difference(folder_ / "whole", folder_ / name), "") << stop;
  }
}

TEST_F(OwnPairs, LostOrChangedPairsAreSaid) {
  const std::string file = folder_ / "refused/reference/phase-2.pairs.json";
  run(recipe("refused"), 43);
  const std::string pairs = read_text(file);
  write_text(file, pairs + " ");
  EXPECT_NE(refusal({}).find("is not what the run had when it wrote"), std::string::npos);
  std::filesystem::remove(file);
  EXPECT_NE(refusal({}).find("is gone: the pairs that the phase trains on"), std::string::npos);
  write_text(file, pairs);
  EXPECT_EQ(refusal({}), "it ran");
}

TEST_F(OwnPairs, WithoutAReference) {
  for (const char* loss : {"orpo", "simpo"}) {
    const std::vector<MetricRow> rows =
        run(recipe(loss, {std::string("--phases.1.preference.loss=") + loss}));
    ASSERT_EQ(rows.size(), 10u);
    EXPECT_EQ(rows[0].scalar("preference/drift_chosen"), nullptr) << loss;
    EXPECT_GT(*rows[9].scalar("preference/margin"), *rows[0].scalar("preference/margin")) << loss;
  }
}

TEST_F(OwnPairs, WhatCannotWorkIsRefused) {
  EXPECT_NE(refusal({"--phases.1.own_pairs.environments.0.name=never_test"}).find("no pair to learn from"),
            std::string::npos);
  EXPECT_NE(refusal({"--phases.1.own_pairs=none"}).find("needs its section [phases.own_pairs]"),
            std::string::npos);
  EXPECT_NE(refusal({"--phases.1.preference=none"}).find("needs its section [phases.preference]"),
            std::string::npos);
  EXPECT_NE(refusal({"--phases.1.preference.loss=kto"}).find("kto compares"), std::string::npos);
  EXPECT_NE(refusal({"--phases.1.preference.loss=orpo", "--phases.1.preference.beta=0.5"})
                .find("orpo, which has lambda"),
            std::string::npos);
  EXPECT_NE(refusal({"--phases.1.preference.loss=simpo", "--phases.1.preference.lambda=0.5"})
                .find("simpo does not use it"),
            std::string::npos);
  EXPECT_NE(refusal({"--phases.1.own_pairs.max_tokens=32"}).find("two replies of up to 32"),
            std::string::npos);
  EXPECT_NE(refusal({"--phases.1.own_pairs.environments.0.most=9"}).find("has difficulties 0 to 3"),
            std::string::npos);
  EXPECT_NE(refusal({"--phases.1.kind=chat"}).find("own_pairs"), std::string::npos);
  EXPECT_NE(refusal({"--phases.1.own_pairs.environments.0.name=sya_test"}).find("sya_test"),
            std::string::npos);
}

}  // namespace
}  // namespace ingot::test::own_pairs_runs_test
