// A run that is killed at any moment and started again ends with the bits of an undisturbed run: weights,
// optimizer, router biases, sampler, metrics, samples. Ctrl-C saves. A finished run stays as it is.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "report/run_record.h"
#include "support/killer.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/rank_lines.h"
#include "train/trainer.h"

namespace ingot::test::killed_resume_test {

namespace fs = std::filesystem;

/// The program that the tests kill: this test program, running one Trainer on a file system that kills it.
TEST(ResumeChild, DISABLED_Run) {
  if (!run_until_killed()) GTEST_SKIP() << "started by the tests of Resume";
}

class Resume : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    write_text(*folder_ / "text.txt", tiny_text(4000));
    write_recipe("whole", "data");
    const ProcessResult r = run("whole", "none");
    ASSERT_EQ(r.exit_code, 0) << r.output;
    counts_ = counted_events(r);
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& run) { return *folder_ / run; }
  static void write_recipe(const std::string& run, const std::string& data) {
    write_text(path(run) + ".toml", tiny_recipe(path(run), path(data), *folder_ / "text.txt"));
  }
  static ProcessResult run(const std::string& run, const std::string& kill) {
    return kill_in_child("ResumeChild.*", path(run) + ".toml", kill);
  }
  /// Kills a new run, runs it to its end, and compares it with the undisturbed one. Returns the phase that
  /// the dying process named.
  static std::string check(const std::string& name, const std::string& kill, const std::string& data) {
    SCOPED_TRACE("killed at: " + kill);
    write_recipe(name, data);
    const ProcessResult killed = run(name, kill);
    EXPECT_EQ(killed.signal, SIGKILL) << killed.output;
    const ProcessResult resumed = run(name, "none");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(difference(path("whole"), path(name)), "");
    expect_every_step_once(path(name));
    fs::remove_all(path(name));
    const std::string mark = "killed in ";
    const size_t at = killed.output.rfind(mark);
    if (at == std::string::npos) return "nothing";
    return killed.output.substr(at + mark.size(), killed.output.find('\n', at) - at - mark.size());
  }
  /// In the windows of ranks.jsonl.
  static void expect_every_step_once(const std::string& run) {
    int64_t done = 0;
    for (const RankTimes& t : read_rank_times(real_file_system(), run + "/" + kRanksFile)) {
      EXPECT_EQ(t.step - t.steps, done);
      done = t.step;
    }
    EXPECT_EQ(done, 24);
  }

  static inline std::unique_ptr<TempDir> folder_;
  static inline std::map<std::string, int64_t> counts_;
};

TEST_F(Resume, TheReferenceRunIsWhole) {
  EXPECT_EQ(losses(path("whole")).size(), 24u);
  EXPECT_EQ(samples(path("whole")).size(), 4u);
  EXPECT_GT(counts_["prepare"], 8);
  EXPECT_EQ(counts_["data"], 24);
  EXPECT_GT(counts_["forward"], 1000);
  EXPECT_GT(counts_["backward"], 1000);
  EXPECT_EQ(counts_["optimizer"], 24);
  EXPECT_EQ(counts_["copy"], 7);
  EXPECT_GT(counts_["write"], 80);
  EXPECT_GE(counts_["rename"], 2 * 2 * counts_["copy"]);
  // The comparison detects a difference: another seed must not compare equal.
  write_recipe("other", "data");
  const std::string text = read_text(path("other") + ".toml");
  write_text(path("other") + ".toml", std::string(text).replace(text.find("seed = 3"), 8, "seed = 4"));
  ASSERT_EQ(run("other", "none").exit_code, 0);
  EXPECT_NE(difference(path("whole"), path("other")), "");
}

/// Kills in one phase: `kills` of them, spread over its events; every second one comes `microseconds` after
/// the event.
struct PhaseKills {
  const char* phase;
  int64_t kills;
  int64_t microseconds = 0;
};

// 30 moments, 10 of them while a checkpoint is written.
constexpr PhaseKills kPhases[] = {{"prepare", 4},      {"data", 3, 50},       {"forward", 3, 20},
                                  {"backward", 3, 20}, {"optimizer", 3, 300}, {"copy", 4, 20},
                                  {"write", 6},        {"rename", 3},         {"delete", 1}};

TEST_F(Resume, KilledInEveryPhase) {
  std::vector<std::string> plans;
  for (const PhaseKills& p : kPhases)
    for (int64_t i = 0; i < p.kills; ++i)
      plans.push_back(fmt::format("{} {} {}", p.phase, (2 * i + 1) * counts_[p.phase] / (2 * p.kills),
                                  i % 2 == 0 ? p.microseconds : 0));
  ASSERT_EQ(plans.size(), 30u);
  std::mutex mutex;
  std::map<std::string, int64_t> hits;
  std::atomic<size_t> next = 0;
  const auto work = [&] {  // two at a time: a small run mostly waits for the disk
    for (size_t i = next++; i < plans.size(); i = next++) {
      const std::string number = std::to_string(i),
                        data = plans[i].starts_with("prepare") ? "data" + number : "data";
      const std::string phase = check("run" + number, plans[i], data);
      const std::lock_guard lock(mutex);
      ++hits[phase];
    }
  };
  std::thread other(work);
  work();
  other.join();
  std::string tally;
  for (const PhaseKills& p : kPhases) {
    EXPECT_EQ(hits[p.phase], p.kills) << p.phase;
    tally += fmt::format(" {} {}", p.phase, hits[p.phase]);
  }
  std::printf("kills by phase:%s; all runs ended with the bits of the undisturbed one\n", tally.c_str());
}

/// The real program, signalled once it has written `rows` rows of metrics; or as it ended where the machine
/// is so full that it ended before this looked, though it is nice.
ProcessResult signalled(const std::string& recipe, const std::string& run_folder, int number, size_t rows) {
  Process p({"/usr/bin/env", "nice", INGOT_BINARY, "run", recipe, "--kernels=any"});
  const std::string metrics = run_folder + "/" + run_files::kMetrics;
  while (p.running()) {
    const std::string text = read_text(metrics);
    if (static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) >= rows) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  p.signal(number);
  return p.wait();
}

/// Runs `stop`, which returns whether its signals came in time, in a new folder until they did.
template <typename Stop>
bool in_time(const std::string& run_folder, Stop stop) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (stop()) return true;
    fs::remove_all(run_folder);
  }
  return false;
}

TEST_F(Resume, TheProgramSavesWhenAskedToStop) {
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string name = "signal" + std::to_string(number);
    write_recipe(name, "data");
    ProcessResult r;
    ASSERT_TRUE(in_time(path(name), [&] {
      r = signalled(path(name) + ".toml", path(name), number, 3);
      return r.exit_code != 0;
    })) << r.output;
    EXPECT_EQ(r.exit_code, 130) << r.output;
    // A step whose validation the signal ended is saved without its row.
    const bool unmeasured = r.output.find("will be validated when the run resumes") != std::string::npos;
    const size_t rows = losses(path(name)).size();
    EXPECT_LT(rows, 24u);
    EXPECT_EQ(checkpoint_content(path(name))["step"], std::to_string(rows + (unmeasured ? 1 : 0)));
    const ProcessResult again = run_process({INGOT_BINARY, "run", path(name) + ".toml", "--kernels=any"});
    EXPECT_EQ(again.exit_code, 0) << again.output;
    EXPECT_NE(again.output.find("resuming at step"), std::string::npos) << again.output;
    EXPECT_EQ(difference(path("whole"), path(name)), "");
  }
}

TEST_F(Resume, TheProgramSurvivesKills) {
  write_recipe("killed", "data");
  ProcessResult r;
  EXPECT_TRUE(in_time(path("killed"), [&] {
    for (const size_t rows : {1, 7, 15, 20}) {
      r = signalled(path("killed") + ".toml", path("killed"), SIGKILL, rows);
      if (r.signal != SIGKILL) return false;
    }
    return true;
  })) << r.output;
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

}  // namespace ingot::test::killed_resume_test
