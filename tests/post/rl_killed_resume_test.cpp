// A run of reinforcement learning that is killed at any moment and started again ends with the bits of an
// undisturbed one: weights, optimizer, curriculum, metrics, and the replies that it wrote down.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "report/metrics.h"
#include "support/killer.h"
#include "support/rl_run.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::rl_killed_resume_test {

namespace fs = std::filesystem;

TEST(RlResumeChild, DISABLED_Run) {
  const char* recipe = std::getenv("INGOT_TEST_RECIPE");
  if (recipe == nullptr) GTEST_SKIP() << "started by the tests of RlResume";
  register_rl_environments();
  Killer killer(KillPlan::parse(std::getenv("INGOT_TEST_KILL")));
  KillFs files(killer);
  KillObserver observer(killer);
  Trainer trainer(files, load_recipe(recipe, {}), StartMode::resume_or_start);
  trainer.observe(&observer);
  EXPECT_TRUE(trainer.run().finished);
  std::printf("COUNTS\n%s", killer.counts().c_str());
}

struct RlResume : ::testing::Test {
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    write_rl_rows(folder_->path());
    const ProcessResult r = run("whole", "none");
    ASSERT_EQ(r.exit_code, 0) << r.output;
    std::istringstream lines(r.output.substr(r.output.find("COUNTS\n") + 7));
    std::string name;
    for (int64_t n = 0; lines >> name >> n;) counts_[name] = n;
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string path(const std::string& run) { return *folder_ / run; }
  static ProcessResult run(const std::string& run, const std::string& kill) {
    write_text(path(run) + ".toml", rl_recipe(folder_->path(), run, 12, "updates_per_batch = 3\n"));
    return run_process(
        {"/proc/self/exe", "--gtest_filter=RlResumeChild.*", "--gtest_also_run_disabled_tests"},
        {"INGOT_TEST_RECIPE=" + path(run) + ".toml", "INGOT_TEST_KILL=" + kill});
  }
  /// All numbers that the phase records but times.
  static std::string records(const std::string& run) {
    std::string text = read_text(path(run) + "/rollouts.jsonl");
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
    double place;  ///< share of the run's events of that kind
  };
  int number = 0;
  for (const Moment m : {Moment{"data", 0.8},
                         {"data", 0.95},
                         {"forward", 0.8},
                         {"backward", 0.9},
                         {"optimizer", 0.97},
                         {"update", 0.87},
                         {"records", 0.92},
                         {"copy", 0.99},
                         {"write", 0.9},
                         {"rename", 0.95}}) {
    const std::string name = "run" + std::to_string(number++);
    const auto event = static_cast<int64_t>(m.place * static_cast<double>(counts_[m.phase]));
    const std::string kill = fmt::format("{} {} 0", m.phase, event);
    SCOPED_TRACE(kill);
    const ProcessResult killed = run(name, kill);
    EXPECT_EQ(killed.signal, SIGKILL) << killed.output;
    const ProcessResult resumed = run(name, "none");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(difference(path("whole"), path(name)), "");
    EXPECT_EQ(records(name), whole);
    fs::remove_all(path(name));
  }
}

}  // namespace ingot::test::rl_killed_resume_test
