// ranks.jsonl of a run: every step in one window, a slow rank busy while the others wait, and no step twice
// where a run goes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "support/digest_run.h"
#include "support/tiny_run.h"
#include "train/rank_lines.h"
#include "train/trainer.h"

namespace ingot::test::rank_log_ranks_test {
namespace {

constexpr double kSlowSeconds = 0.05;  ///< that a slow rank takes longer over each step

/// Computes longer.
class Slow final : public RunObserver {
 public:
  void enters(StepPart part) override {
    if (part == StepPart::passes) std::this_thread::sleep_for(std::chrono::duration<double>(kSlowSeconds));
  }
  void tensor(const std::string&, const Tensor&) override {}
};

class RankLogOfRun : public ::testing::Test {
 protected:
  void SetUp() override { write_text(folder_ / "text.txt", tiny_text(2000)); }
  /// `slow`: the slow rank; below 0: none.
  void run(const std::vector<std::string>& options, int slow, const Rewind& rewind = {}) {
    const Quiet quiet;
    write_text(folder_ / "recipe.toml", digest_recipe(folder_.path(), "run"));
    const Recipe recipe = load_recipe(folder_ / "recipe.toml", options);
    set_kernel_policy(KernelPolicy::any);
    run_ranks(4, [&](ThreadRank& self) {
      Slow observer;
      Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start, &self, rewind);
      if (self.rank() == slow) trainer.observe(&observer);
      trainer.run();
    });
  }
  std::vector<RankTimes> lines() {
    return read_rank_times(real_file_system(), folder_ / (std::string("run/") + kRanksFile));
  }
  /// Every step up to `last` is in exactly one window.
  void expect_every_step_once(int64_t last) {
    int64_t done = 0;
    for (const RankTimes& t : lines()) {
      EXPECT_EQ(t.step - t.steps, done);
      EXPECT_EQ(t.busy.size(), 4U);
      done = t.step;
    }
    EXPECT_EQ(done, last);
  }
  TempDir folder_;
};

TEST_F(RankLogOfRun, ASlowRankIsBusyWhileTheOthersWait) {
  run({"--run.log_every=1"}, 2);
  const std::vector<RankTimes> all = lines();
  ASSERT_EQ(all.size(), 8U);
  expect_every_step_once(8);
  for (const RankTimes& t : all) {
    const auto slowest = std::max_element(t.busy.begin(), t.busy.end()) - t.busy.begin();
    EXPECT_EQ(slowest, 2) << to_json_line(t);
    EXPECT_GE(t.busy[2], kSlowSeconds) << to_json_line(t);
    for (const size_t other : {0, 1, 3}) EXPECT_GT(t.waited[other], kSlowSeconds / 2) << to_json_line(t);
  }
}

TEST_F(RankLogOfRun, AWindowEndsWithALineOfTheLogACheckpointAndTheRun) {
  run({"--run.log_every=3"}, -1);
  std::vector<int64_t> steps;
  for (const RankTimes& t : lines()) steps.push_back(t.step);
  // Lines of the log: 1, 3, 6, 8; checkpoints: 4, 5 (end of a phase), 8.
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 3, 4, 5, 6, 8}));
  expect_every_step_once(8);
}

TEST_F(RankLogOfRun, OfARunThatGoesBackStepsComeAgainOnce) {
  run({"--run.log_every=3"}, -1);
  const std::vector<RankTimes> before = lines();
  Rewind rewind;
  rewind.from = 4;
  run({"--run.log_every=3"}, -1, rewind);
  expect_every_step_once(8);
  const std::vector<RankTimes> after = lines();
  ASSERT_GE(after.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(after[i], before[i]) << "what was before step 4 stays";
}

}  // namespace
}  // namespace ingot::test::rank_log_ranks_test
