// The bonus for length in a run: how many groups of a batch get one, and the length of the smallest.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "post/register.h"
#include "post/rl/rollout.h"
#include "report/metrics.h"
#include "support/rl_run.h"
#include "support/support.h"
#include "train/trainer.h"

namespace ingot::test::rl_length_runs_test {

/// Three steps with these settings of [phases.rl], in `folder`/run; `reasons`: replies think before they
/// answer.
void train(const TempDir& folder, const std::string& settings, bool reasons = false) {
  register_post();
  register_rl_environments();
  write_rl_rows(folder.path(), reasons);
  std::vector<std::string> options;
  if (reasons) options = {"--phases.1.rl.thinking=on", "--phases.1.rl.max_tokens=24"};
  write_text(folder / "recipe.toml", rl_recipe(folder.path(), "run", 3, settings));
  Trainer trainer(real_file_system(), load_recipe(folder / "recipe.toml", options),
                  StartMode::resume_or_start);
  EXPECT_TRUE(trainer.run().finished);
}

/// The mean of their rl/bonus_groups, -1 where there is none.
double bonus_groups(const std::string& settings) {
  const TempDir folder;
  train(folder, settings);
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

/// How much of half the coefficient times the pass rate a right reply got, by the shortest right one's tokens
/// and its own.
std::map<std::pair<int64_t, int64_t>, std::set<double>> shares_by_length(const std::string& settings) {
  const TempDir folder;
  train(folder, "[phases.rl.length]\nreward = 1\naccuracy_tolerance = 1.0\n" + settings, true);
  std::map<std::pair<int64_t, int64_t>, std::vector<RolloutLine>> groups;
  FileSystem& fs = real_file_system();
  const std::string file = folder / "run/rollouts.jsonl";
  for (const int64_t step : rollout_steps(fs, file))
    for (RolloutLine& line : read_rollouts(fs, file, step))
      if (line.reward == 1) groups[{line.step, line.group}].push_back(std::move(line));
  std::map<std::pair<int64_t, int64_t>, std::set<double>> shares;
  for (const auto& [group, right] : groups) {
    size_t shortest = right[0].tokens.size();
    for (const RolloutLine& line : right) shortest = std::min(shortest, line.tokens.size());
    const double half = 0.5 * static_cast<double>(right.size()) / 8;
    for (const RolloutLine& line : right)
      if (right.size() > 1)
        shares[{static_cast<int64_t>(shortest), std::ssize(line.tokens)}].insert(line.bonus / half);
  }
  return shares;
}

TEST(RlLength, TheLongestIsWhereTheBonusEnds) {
  // Right replies have two tokens, or eleven.
  for (const int64_t longest : {0, 1, 8, 12}) {
    bool differ = false;
    for (const auto& [lengths, of] : shares_by_length(fmt::format("longest = {}\n", longest))) {
      const auto [shortest, length] = lengths;
      const int64_t end = longest == 0 ? 24 : longest;  // max_tokens
      const double above =
          static_cast<double>(length - shortest) / static_cast<double>(std::max<int64_t>(1, end - shortest));
      EXPECT_NEAR(*of.begin(), 1 - 2 * std::min(above, 1.0), 1e-12) << length << " of " << longest;
      EXPECT_EQ(of.size(), 1U);
      differ = differ || length > shortest;
    }
    EXPECT_TRUE(differ) << "all right replies are of one length";
  }
  EXPECT_THROW(bonus_groups("[phases.rl.length]\nlongest = 7\n"), Error) << "of 6 tokens at most";
}

}  // namespace ingot::test::rl_length_runs_test
