// A run of reinforcement learning that is killed at any moment and started again ends with the bits of an
// undisturbed one: weights, optimizer, curriculum, metrics, and the replies that it wrote down.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "report/metrics.h"
#include "support/killer.h"
#include "support/rl_run.h"
#include "support/tiny_run.h"

namespace ingot::test::rl_killed_resume_test {

namespace fs = std::filesystem;

TEST(RlResumeChild, DISABLED_Run) {
  register_rl_environments();
  if (!run_until_killed()) GTEST_SKIP() << "started by the tests of RlResume";
}

struct RlResume : ::testing::Test {
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    write_rl_rows(folder_->path());
    const ProcessResult r = run("whole", "none");
    ASSERT_EQ(r.exit_code, 0) << r.output;
    counts_ = counted_events(r);
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string path(const std::string& run) { return *folder_ / run; }
  static ProcessResult run(const std::string& run, const std::string& kill) {
    write_text(path(run) + ".toml", rl_recipe(folder_->path(), run, 12,
                                              "updates_per_batch = 3\ntemperature = 0.9\ntop_p = 0.95\n"
                                              "kl_reference = 0.05\n"));
    return kill_in_child("RlResumeChild.*", path(run) + ".toml", kill);
  }
  /// All numbers that the phase records but times.
  static std::string records(const std::string& run) {
    std::string text =
        read_text(path(run) + "/rollouts.jsonl") + read_text(path(run) + "/rollout_counts.jsonl");
    for (const MetricRow& row : read_metrics(real_file_system(), path(run) + "/metrics.jsonl"))
      for (const auto& [name, value] : row.scalars)
        if (name.starts_with("rl/") && !name.ends_with("_seconds"))
          text += fmt::format("{} {}={:a}\n", row.step, name, value);
    return text;
  }
  static inline std::unique_ptr<TempDir> folder_;
  static inline std::map<std::string, int64_t> counts_;
};

TEST_F(RlResume, KilledAtTenMoments) {
  const std::string whole = records("whole");
  EXPECT_NE(whole.find("rl/unequal"), std::string::npos);
  // In the second phase: 40 steps of 52 are the first's. Checkpoints lie inside a batch of three updates.
  struct Moment {
    const char* phase;
    double place;              ///< share of the run's events of that kind
    int64_t microseconds = 0;  ///< after it
  };
  int number = 0;
  for (const Moment m :
       {Moment{"data", 43.0 / 52, 1500},  // replies are sampled and judged in steps 40, 43, ...
        {"data", 46.0 / 52, 6000},
        {"forward", 0.8},
        {"backward", 0.9},
        {"optimizer", 0.97},
        {"update", 0.87},
        {"records", 0.92},
        {"copy", 0.99},
        {"write", 0.9},
        {"rename", 0.95}}) {
    const std::string name = "run" + std::to_string(number++);
    const auto event = static_cast<int64_t>(m.place * static_cast<double>(counts_[m.phase]) + 1e-9);
    const std::string kill = fmt::format("{} {} {}", m.phase, event, m.microseconds);
    SCOPED_TRACE(kill);
    const ProcessResult killed = run(name, kill);
    EXPECT_EQ(killed.signal, SIGKILL) << killed.output;
    const std::vector<MetricRow> before = read_metrics(real_file_system(), path(name) + "/metrics.jsonl");
    EXPECT_GE(before.size(), 40u) << "the second phase had not begun";
    const ProcessResult resumed = run(name, "none");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(difference(path("whole"), path(name)), "");
    EXPECT_EQ(records(name), whole);
    fs::remove_all(path(name));
  }
}

}  // namespace ingot::test::rl_killed_resume_test
