// A run that is killed at any moment and started again ends with the bits of an undisturbed run: weights,
// optimizer, router biases, sampler, metrics, samples. Ctrl-C saves. A finished run stays as it is.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "record/run_record.h"
#include "support/kill_fs.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test {
namespace {

namespace fs = std::filesystem;

/// The program that the tests kill: this test program again, running one Trainer on a file system that kills.
TEST(ResumeChild, DISABLED_Run) {
  const char* recipe = std::getenv("INGOT_TEST_RECIPE");
  if (recipe == nullptr) GTEST_SKIP() << "started by the tests of Resume";
  set_kernel_policy(KernelPolicy::any);
  KillFs files(KillPlan::parse(std::getenv("INGOT_TEST_KILL")));
  Trainer trainer(files, load_recipe(recipe, {}), StartMode::resume_or_start);
  EXPECT_TRUE(trainer.run().finished);
  std::printf("COUNTS\n%s", files.counts().c_str());
}

class Resume : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    write_text(*folder_ / "text.txt", tiny_text(4000));
    write_recipe("whole", "data");
    const ProcessResult r = run("whole", "none");
    ASSERT_EQ(r.exit_code, 0) << r.output;
    std::istringstream lines(r.output.substr(r.output.find("COUNTS\n") + 7));
    std::string name;
    for (int64_t n = 0; lines >> name >> n;) counts_[name] = n;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& run) { return *folder_ / run; }
  static void write_recipe(const std::string& run, const std::string& data) {
    write_text(path(run) + ".toml", tiny_recipe(path(run), path(data), *folder_ / "text.txt"));
  }
  static ProcessResult run(const std::string& run, const std::string& kill) {
    return run_process({"/proc/self/exe", "--gtest_filter=ResumeChild.*", "--gtest_also_run_disabled_tests"},
                       {"INGOT_TEST_RECIPE=" + path(run) + ".toml", "INGOT_TEST_KILL=" + kill});
  }
  /// Kills a new run, runs it to its end, and compares with the undisturbed one.
  static void check(const std::string& name, const std::string& kill, const std::string& data = "data") {
    SCOPED_TRACE("killed at: " + kill);
    write_recipe(name, data);
    const ProcessResult killed = run(name, kill);
    EXPECT_EQ(killed.signal, SIGKILL) << killed.output;
    const ProcessResult resumed = run(name, "none");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(difference(path("whole"), path(name)), "");
    fs::remove_all(path(name));
  }

  static inline std::unique_ptr<TempDir> folder_;
  static inline std::map<std::string, int64_t> counts_;
};

TEST_F(Resume, TheReferenceRunIsWhole) {
  EXPECT_EQ(losses(path("whole")).size(), 24u);
  EXPECT_EQ(samples(path("whole")).size(), 4u);
  EXPECT_GT(counts_["checkpoint"], 80);
  EXPECT_GT(counts_["data"], 8);
  EXPECT_EQ(counts_["step"], 24);
  // Another seed must not compare equal: the comparison sees what it should.
  write_recipe("other", "data");
  const std::string text = read_text(path("other") + ".toml");
  write_text(path("other") + ".toml", std::string(text).replace(text.find("seed = 3"), 8, "seed = 4"));
  ASSERT_EQ(run("other", "none").exit_code, 0);
  EXPECT_NE(difference(path("whole"), path("other")), "");
}

TEST_F(Resume, KilledWhilePreparingData) {
  for (int64_t i = 0; i < 5; ++i) {
    const std::string n = std::to_string(i);
    check("data-run" + n, fmt::format("data {}", i * (counts_["data"] - 1) / 4), "data" + n);
  }
}

TEST_F(Resume, KilledInsideSteps) {
  // Moments spread over a step: loading, forward, backward, optimizer, metrics.
  for (int64_t i = 0; i < 11; ++i)
    check("step-run" + std::to_string(i), fmt::format("step {} {}", 2 * i + 1, i * 250));
}

TEST_F(Resume, KilledWhileCopyingACheckpoint) {
  const int64_t waits[] = {0, 30, 100, 400};
  for (int64_t i = 0; i < 4; ++i)
    check("copy-run" + std::to_string(i), fmt::format("copy {} {}", i + 1, waits[i]));
}

TEST_F(Resume, KilledInsideACheckpoint) {
  for (int64_t i = 0; i < 10; ++i)
    check("save-run" + std::to_string(i),
          fmt::format("checkpoint {}", 2 + i * (counts_["checkpoint"] - 4) / 9));
}

/// The real program, signalled once it has written `rows` rows of metrics.
ProcessResult signalled(const std::string& recipe, const std::string& run_folder, int number, size_t rows) {
  Process p({INGOT_BINARY, "run", recipe, "--kernels=any"});
  const std::string metrics = run_folder + "/" + run_files::kMetrics;
  while (p.running()) {
    const std::string text = read_text(metrics);
    if (static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) >= rows) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  p.signal(number);
  return p.wait();
}

TEST_F(Resume, TheProgramSavesWhenAskedToStop) {
  int stopped = 0;
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string name = "signal" + std::to_string(number);
    write_recipe(name, "data");
    const ProcessResult r = signalled(path(name) + ".toml", path(name), number, 3);
    EXPECT_EQ(r.exit_code, 130) << r.output;
    stopped += losses(path(name)).size() < 24;
    EXPECT_EQ(checkpoint_content(path(name))["step"], std::to_string(losses(path(name)).size()));
    const ProcessResult again = run_process({INGOT_BINARY, "run", path(name) + ".toml", "--kernels=any"});
    EXPECT_EQ(again.exit_code, 0) << again.output;
    EXPECT_NE(again.output.find("resuming at step"), std::string::npos) << again.output;
    EXPECT_EQ(difference(path("whole"), path(name)), "");
  }
  EXPECT_EQ(stopped, 2);
}

TEST_F(Resume, TheProgramSurvivesKills) {
  write_recipe("killed", "data");
  for (size_t rows : {1, 7, 15, 20}) {
    const ProcessResult r = signalled(path("killed") + ".toml", path("killed"), SIGKILL, rows);
    EXPECT_EQ(r.signal, SIGKILL) << r.output;
  }
  EXPECT_EQ(run_process({INGOT_BINARY, "run", path("killed") + ".toml", "--kernels=any"}).exit_code, 0);
  EXPECT_EQ(difference(path("whole"), path("killed")), "");
}

TEST_F(Resume, AFinishedRunStaysAsItIs) {
  const std::string folder = path("whole");
  std::map<std::string, std::string> before;
  for (const auto& f : fs::recursive_directory_iterator(folder))
    if (f.is_regular_file()) before[f.path()] = read_text(f.path());
  const ProcessResult r = run_process({INGOT_BINARY, "run", folder + ".toml", "--kernels=any"});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("finished"), std::string::npos) << r.output;
  std::map<std::string, std::string> after;
  for (const auto& f : fs::recursive_directory_iterator(folder))
    if (f.is_regular_file()) after[f.path()] = read_text(f.path());
  for (const auto& [name, text] : before) {
    if (name.find("run.lock") != std::string::npos) continue;
    EXPECT_TRUE(after[name] == text) << name << " changed";
  }
  EXPECT_EQ(after.size(), before.size());
}

}  // namespace
}  // namespace ingot::test
