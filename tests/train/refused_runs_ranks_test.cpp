// Runs that are refused before they start because of their ranks: the message says why and what to change.
#include <gtest/gtest.h>

#include "comm/threads.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::refused_runs_ranks_test {

/// The error and the hint with which the tiny recipe is refused; `options` by rank.
std::string refusal(int ranks, const std::function<std::vector<std::string>(int rank)>& options) {
  const TempDir folder;
  const std::string path = folder / "recipe.toml";
  write_text(folder / "text.txt", tiny_text(4000));
  write_text(path, tiny_recipe(folder / "run", folder / "data", folder / "text.txt"));
  try {
    run_ranks(ranks, [&](ThreadRank& self) {
      set_kernel_policy(KernelPolicy::any);
      Trainer trainer(real_file_system(), load_recipe(path, options(self.rank())), StartMode::resume_or_start,
                      &self);
      trainer.run();
    });
  } catch (const Error& e) {
    return std::string(e.what()) + "; " + e.hint();
  }
  return "accepted";
}

TEST(RefusedRuns, LayoutsThatDoNotFit) {
  const auto message = [](int ranks, std::vector<std::string> more) {
    more.insert(more.begin(), {"--phases.0.batch=8", "--phases.1.batch=8", "--phases.0.micro_batch=1",
                               "--phases.1.micro_batch=2"});
    return refusal(ranks, [&](int) { return more; });
  };
  EXPECT_EQ(message(3, {}),
            "phase 'first': a batch of 8 sequences does not divide among 3 data ranks in micro-batches of 1; "
            "choose phases.0.batch as a multiple of 3, or set parallel.batch_fit to down or up");
  EXPECT_EQ(
      message(2, {"--parallel.tensor=2", "--parallel.sequence=true", "--phases.1.sequence=39"}),
      "phase 'second': 39 tokens of each sequence do not divide among 2 tensor ranks, which shard their "
      "rows; choose phases.1.sequence as a multiple of 2");
  EXPECT_EQ(message(2, {"--parallel.data=4"}),
            "parallel.data = 4 x parallel.tensor = 1 needs 4 ranks, but 2 were started; start that many "
            "(mpirun -n 4), or leave parallel.data at 0");
}

TEST(RefusedRuns, RanksWithDifferentRecipes) {
  const std::string text = refusal(2, [](int rank) -> std::vector<std::string> {
    return {"--phases.1.batch=4", fmt::format("--run.seed={}", rank)};
  });
  EXPECT_EQ(text.substr(0, text.find(';')),
            "ranks 0 and 1 do not have the same program or recipe: 'seed = 0' and 'seed = 1'");
}

}  // namespace ingot::test::refused_runs_ranks_test
