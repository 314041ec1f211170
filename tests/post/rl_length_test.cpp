// The bonus for length in a run: how many groups of a batch get one.
#include <gtest/gtest.h>

#include "post/register.h"
#include "report/metrics.h"
#include "support/rl_run.h"
#include "support/support.h"
#include "train/trainer.h"

namespace ingot::test::rl_length_test {

/// Three steps with these settings of [phases.rl]: the mean of rl/bonus_groups, -1 where there is none.
double bonus_groups(const std::string& settings) {
  register_post();
  register_rl_environments();
  const TempDir folder;
  write_rl_rows(folder.path());
  write_text(folder / "recipe.toml", rl_recipe(folder.path(), "run", 3, settings));
  Trainer trainer(real_file_system(), load_recipe(folder / "recipe.toml", {}), StartMode::resume_or_start);
  EXPECT_TRUE(trainer.run().finished);
  double sum = 0, steps = 0;
  for (const MetricRow& row : read_metrics(real_file_system(), folder / "run/metrics.jsonl"))
    if (const double* share = row.scalar("rl/bonus_groups")) sum += *share, ++steps;
  return steps == 0 ? -1 : sum / steps;
}

// Groups that are all right are left out, so at the strictest tolerance few of a batch are as good as the
// best were on average; at 1 all that solve their problem twice get a bonus.
TEST(RlLength, ABatchSaysHowManyOfItsGroupsGetABonus) {
  EXPECT_EQ(bonus_groups(""), -1);
  const std::string length = "[phases.rl.length]\nreward = 1\naccuracy_tolerance = ";
  const double strict = bonus_groups(length + "0.0\n"), all = bonus_groups(length + "1.0\n");
  EXPECT_GE(strict, 0);
  EXPECT_LT(strict, all);
  EXPECT_GT(all, 0.4);
  EXPECT_LE(all, 1);
}

}  // namespace ingot::test::rl_length_test
