// Reinforcement learning on data ranks: from the same weights they ask the same problems, draw the same
// replies bit for bit, and their step has the loss and the gradient of one rank's.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "comm/threads.h"
#include "report/metrics.h"
#include "support/rl_run.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::rl_ranks_test {
namespace {

/// The two phases of the recipe as runs of their own: the second starts from the first one's weights.
Recipe second_phase(const std::string& folder, const std::string& name) {
  const std::string file = folder + "/" + name + ".toml";
  write_text(file, rl_recipe(folder, name, 2, "need_signal = false\ntop_p = 0.95\nkl_reference = 0.1\n"));
  Recipe r = load_recipe(file, {"--run.start_from=" + folder + "/tuned"});
  r.phases.erase(r.phases.begin());
  r.phases[0].rl->record_groups = 6;  // all
  return r;
}

}  // namespace

TEST(RlRanks, DataRanksDrawWhatOneRankDraws) {
  register_rl_environments();
  const Quiet quiet;
  const TempDir folder;
  write_rl_rows(folder.path());
  write_text(folder / "tuned.toml", rl_recipe(folder.path(), "tuned", 2));
  Recipe tuned = load_recipe(folder / "tuned.toml", {});
  tuned.phases.pop_back();
  EXPECT_TRUE(Trainer(real_file_system(), tuned, StartMode::fresh).run().finished);
  std::map<int, std::vector<MetricRow>> rows;
  std::map<int, std::vector<RolloutLine>> first;
  for (const int ranks : {1, 2, 4}) {
    const std::string name = "ranks" + std::to_string(ranks);
    const Recipe recipe = second_phase(folder.path(), name);
    run_ranks(ranks, [&](ThreadRank& self) {
      set_kernel_policy(KernelPolicy::any);
      Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start, &self);
      EXPECT_TRUE(trainer.run().finished);
    });
    rows[ranks] = read_metrics(real_file_system(), folder / (name + "/metrics.jsonl"));
    ASSERT_EQ(rows[ranks].size(), 2u);
    for (const MetricRow& row : rows[ranks]) {
      EXPECT_EQ(*row.scalar("rl/unequal"), 0) << ranks;
      EXPECT_EQ(*row.scalar("rl/compared"), *row.scalar("rl/sampled_tokens")) << ranks;
      EXPECT_EQ(*row.scalar("rl/groups"), 6) << ranks;
    }
    first[ranks] = read_rollouts(real_file_system(), folder / (name + "/rollouts.jsonl"), 1);
    EXPECT_EQ(first[ranks].size(), 6u * 8) << ranks;
  }
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    ASSERT_EQ(first[ranks].size(), first[1].size());
    for (size_t i = 0; i < first[1].size(); ++i)
      EXPECT_EQ(to_json_line(first[ranks][i]), to_json_line(first[1][i])) << i;
    for (const auto& [name, value] : rows[1][0].scalars)
      if (name == "objective" ||
          (name.starts_with("rl/") && !name.ends_with("_seconds") && name != "rl/fill")) {
        // Sums in double in another order.
        EXPECT_NEAR(*rows[ranks][0].scalar(name), value, 1e-12 * std::max(1.0, std::abs(value))) << name;
      }
    // Sums of fp32 gradients in another order.
    EXPECT_NEAR(*rows[ranks][0].scalar("grad_norm") / *rows[1][0].scalar("grad_norm"), 1, 1e-5);
  }
}

}  // namespace ingot::test::rl_ranks_test
