// Phases of kind rl whose prompts show candidates: the share that does, what a prompt shows, exactness,
// resume.
#include <gtest/gtest.h>

#include "base/error.h"
#include "post/rl/aggregation_prompt.h"
#include "support/rl_run.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/run_observer.h"
#include "train/trainer.h"

namespace ingot::test::aggregation_prompt_runs_test {

const char* const kAggregation =
    "thinking_tokens = 4\nanswer_tokens = 4\n[phases.rl.aggregation]\nshare = 0.5\ncandidates = 3\ntail = 4\n"
    "compaction = \"hybrid\"\nexpert = 0.3\n";

Recipe aggregation_recipe(const std::string& folder, const std::string& run, int steps,
                          const std::vector<std::string>& more = {}) {
  register_rl_environments();
  write_rl_rows(folder);
  write_text(folder + "/" + run + ".toml", rl_recipe(folder, run, steps, kAggregation));
  std::vector<std::string> options = {"--model.context=256", "--phases.1.sequence=256",
                                      "--phases.1.rl.max_tokens=12", "--phases.1.rl.record_groups=100"};
  options.insert(options.end(), more.begin(), more.end());
  return load_recipe(folder + "/" + run + ".toml", options);
}

/// Asks the run to save and end in its n-th step.
class StopIn final : public RunObserver {
 public:
  explicit StopIn(int64_t steps) : left_(steps) {}
  bool wants_tensors() const override { return false; }
  void tensor(const std::string&, const Tensor&) override {}
  void enters(StepPart part) override {
    if (part == StepPart::optimizer && --left_ == 0) Trainer::interrupt();
  }

 private:
  int64_t left_;
};

TEST(AggregationPrompts, TheShareIsEvenAndKeepsNoStepWithParity) {
  RlAggregationConfig config;
  for (const double share : {0.0, 0.05, 0.3, 0.5, 1.0}) {
    config.share = share;
    for (int64_t begin = 0; begin < 5; ++begin) {
      int shown = 0, odd = 0;
      for (int64_t n = begin * 1000; n < (begin + 1) * 1000; ++n)
        if (shows_candidates(config, n)) ++shown, odd += n % 2 == 1 ? 1 : 0;
      EXPECT_NEAR(shown, share * 1000, 5) << share;
      EXPECT_NEAR(odd, shown / 2.0, 5) << share;
    }
  }
}

TEST(AggregationPrompts, AreJudgedAsAnyOtherAndExact) {
  const TempDir folder;
  const Recipe recipe = aggregation_recipe(folder.path(), "run", 8);
  Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start);
  ASSERT_TRUE(trainer.run().finished);
  double compared = 0;
  for (const MetricRow& row : read_metrics(real_file_system(), folder / "run/metrics.jsonl")) {
    if (row.scalar("rl/kl") == nullptr) continue;
    EXPECT_EQ(*row.scalar("rl/unequal"), 0);
    compared += *row.scalar("rl/compared");
    ASSERT_NE(row.scalar("rl/aggregation/reward"), nullptr);
    const double right = *row.scalar("rl/aggregation/right");
    EXPECT_TRUE(right >= 0 && right <= 1);
  }
  EXPECT_GT(compared, 300);
  int with = 0, without = 0;
  for (const int64_t step : rollout_steps(real_file_system(), folder / "run/rollouts.jsonl"))
    for (const RolloutLine& l : read_rollouts(real_file_system(), folder / "run/rollouts.jsonl", step)) {
      const bool shows = l.prompt.find("[3] ") != std::string::npos;
      (shows ? with : without) += 1;
      EXPECT_EQ(shows, l.prompt.find("Give one solution") != std::string::npos) << l.prompt;
      EXPECT_EQ(l.prompt.find("[4] "), std::string::npos) << l.prompt;
    }
  EXPECT_GT(with, 8 * 8);
  EXPECT_GT(without, 8 * 8);
}

TEST(AggregationPrompts, AStoppedRunEndsWithTheSameBits) {
  const TempDir folder;
  const auto run = [&](const std::string& name, bool stops) {
    const Recipe recipe = aggregation_recipe(folder.path(), name, 4, {"--checkpoint.every=2"});
    if (stops) {  // in a step whose candidates and replies are drawn
      Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start);
      StopIn observer(41);
      trainer.observe(&observer);
      EXPECT_FALSE(trainer.run().finished);
    }
    Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start);
    EXPECT_TRUE(trainer.run().finished);
    return read_text(folder / (name + "/rollouts.jsonl"));
  };
  EXPECT_EQ(run("whole", false), run("stopped", true));
}

TEST(AggregationPrompts, WhatCannotWorkIsRefused) {
  const TempDir folder;
  const auto refusal = [&](const std::vector<std::string>& more) {
    try {
      const Recipe recipe = aggregation_recipe(folder.path(), "refused", 2, more);
      Trainer trainer(real_file_system(), recipe, StartMode::fresh);
      trainer.run();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("it ran");
  };
  EXPECT_NE(
      refusal({"--phases.1.rl.aggregation.tail=5"}).find("at most the 4 tokens that a candidate may think"),
      std::string::npos);
  EXPECT_NE(refusal({"--phases.1.rl.aggregation.share=1.5"}).find("share"), std::string::npos);
  EXPECT_NE(refusal({"--phases.1.sequence=80"}).find("positions, a row has 80"), std::string::npos);
}

}  // namespace ingot::test::aggregation_prompt_runs_test
