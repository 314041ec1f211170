// Plans of phases whose replies are drawn: rows, work and time follow from the mean length where the recipe
// says it, else from the longest.
#include "post/rl/rl_plan.h"

#include <gtest/gtest.h>

#include "base/file_system.h"
#include "support/rl_run.h"
#include "train/preflight.h"

namespace ingot::test::rl_plan_test {

TEST(RlPlan, RowsHoldWholeRepliesOfTheLongestOrAreFilledByTheMean) {
  const PlannedRows longest = rows_of_replies(256, 1, 256, 0, 512),
                    mean = rows_of_replies(256, 1, 256, 90, 512);
  EXPECT_EQ(longest.rows, 256) << "320 of 512 positions each";
  EXPECT_TRUE(longest.longest);
  EXPECT_EQ(mean.rows, 56) << "256 x 112 positions";
  EXPECT_FALSE(mean.longest);
  EXPECT_EQ(rows_of_replies(6, 1, 16, 0, 64).rows, 2) << "three to a row";
  EXPECT_EQ(rows_of_replies(64, 2, 224, 90, 512).rows, 28) << "pairs of 224 positions";
  EXPECT_EQ(rows_of_replies(1, 2, 224, 0, 512).rows, 1);
}

TEST(RlPlan, ShorterRepliesTakeLessTimeInTheSameMemory) {
  register_rl_environments();
  const TempDir folder;
  write_rl_rows(folder.path());
  const auto plan = [&](const std::string& more) {
    write_text(folder / "recipe.toml", rl_recipe(folder.path(), "run", 4, more));
    Recipe recipe = load_recipe(folder / "recipe.toml", {});
    recipe.model.vocab = 300;
    return plan_run(real_file_system(), recipe);
  };
  const Preflight longest = plan(""), shorter = plan("reply_tokens = 2\n");
  EXPECT_LT(shorter.phases[1].levels[0].step_flops, longest.phases[1].levels[0].step_flops);
  EXPECT_LT(shorter.phases[1].source.flops, longest.phases[1].source.flops);
  EXPECT_LT(shorter.roofline_seconds, longest.roofline_seconds);
  EXPECT_EQ(shorter.predicted_bytes, longest.predicted_bytes) << "memory must do for the longest";
  EXPECT_NE(longest.text.find("with sampling where every reply has its full length"), std::string::npos)
      << longest.text;
  EXPECT_NE(shorter.text.find("tokens at 2 each, at most"), std::string::npos) << shorter.text;
  EXPECT_EQ(shorter.text.find("full length"), std::string::npos) << shorter.text;
  const Preflight again = plan("reply_tokens = 2\nsignal_share = 0.5\n");
  EXPECT_DOUBLE_EQ(again.phases[1].source.flops, 2 * shorter.phases[1].source.flops);
  EXPECT_EQ(again.phases[1].levels[0].step_flops, shorter.phases[1].levels[0].step_flops);
  EXPECT_THROW(plan("need_signal = false\nsignal_share = 0.5\n"), Error);
}

TEST(RlPlan, EvaluationTasksAreCountedInMemory) {
  register_rl_environments();
  const TempDir folder;
  write_rl_rows(folder.path());
  write_text(folder / "recipe.toml", rl_recipe(folder.path(), "run", 4));
  const auto plan = [&](const std::vector<std::string>& tasks) {
    Recipe recipe = load_recipe(folder / "recipe.toml", {});
    recipe.model.vocab = 300;
    recipe.evaluation.tasks = tasks;
    return plan_run(real_file_system(), recipe);
  };
  const Preflight without = plan({}), with = plan({"say_test"});
  EXPECT_EQ(without.task_bytes, 0);
  EXPECT_GT(with.task_bytes, 0);
  EXPECT_EQ(with.predicted_bytes, without.predicted_bytes + with.task_bytes);
  EXPECT_NE(with.text.find("evaluation tasks "), std::string::npos) << with.text;
}

TEST(RlPlan, WhatDecidesNoWeightMayChangeInARunThatWasBegun) {
  register_rl_environments();
  const TempDir folder;
  write_rl_rows(folder.path());
  write_text(folder / "recipe.toml", rl_recipe(folder.path(), "run", 4));
  const auto recipe = [&](const std::vector<std::string>& changes) {
    return to_node(load_recipe(folder / "recipe.toml", changes));
  };
  const auto free =
      diff_config(recipe({}), recipe({"--phases.1.rl.reply_tokens=2", "--phases.1.rl.signal_share=0.5",
                                      "--phases.1.rl.cache_mib=7", "--phases.1.rl.record_groups=7"}));
  EXPECT_EQ(free.size(), 4u);
  for (const ConfigDifference& d : free) EXPECT_FALSE(d.fixed) << d.path;
  const auto fixed = diff_config(recipe({}), recipe({"--phases.1.rl.resample=3"}));
  ASSERT_EQ(fixed.size(), 1u);
  EXPECT_TRUE(fixed[0].fixed) << fixed[0].path;
}

}  // namespace ingot::test::rl_plan_test
