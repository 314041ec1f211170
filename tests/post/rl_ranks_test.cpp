// Reinforcement learning on several data ranks: they share the prompts, every rank knows all replies, and
// what is sampled and recorded is what one rank samples.
#include <gtest/gtest.h>

#include <map>

#include "base/log.h"
#include "comm/threads.h"
#include "report/metrics.h"
#include "support/rl_run.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::rl_ranks_test {

TEST(RlRanks, DataRanksShareThePrompts) {
  register_rl_environments();
  const log::Level level = log::level();
  log::set_level(log::Level::error);
  const TempDir folder;
  write_rl_rows(folder.path());
  std::map<int, std::vector<MetricRow>> rows;
  for (const int ranks : {1, 2, 4}) {
    const std::string name = "ranks" + std::to_string(ranks);
    write_text(folder / (name + ".toml"), rl_recipe(folder.path(), name, 2, "need_signal = false\n"));
    const Recipe recipe = load_recipe(folder / (name + ".toml"), {});
    run_ranks(ranks, [&](ThreadRank& self) {
      set_kernel_policy(KernelPolicy::any);
      Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start, &self);
      EXPECT_TRUE(trainer.run().finished);
    });
    for (const MetricRow& row : read_metrics(real_file_system(), folder / (name + "/metrics.jsonl")))
      if (row.scalar("rl/kl") != nullptr) rows[ranks].push_back(row);
    ASSERT_EQ(rows[ranks].size(), 2u);
    for (const MetricRow& row : rows[ranks]) {
      EXPECT_EQ(*row.scalar("rl/unequal"), 0) << ranks;
      EXPECT_EQ(*row.scalar("rl/compared"), *row.scalar("rl/sampled_tokens")) << ranks;
      EXPECT_EQ(*row.scalar("rl/groups"), 6) << ranks;
    }
  }
  // The weights of the second phase differ by the order of sums, so texts may too; amounts are near.
  for (const int ranks : {2, 4})
    EXPECT_NEAR(*rows[ranks][0].scalar("rl/entropy"), *rows[1][0].scalar("rl/entropy"), 0.2) << ranks;
  log::set_level(level);
}

}  // namespace ingot::test::rl_ranks_test
