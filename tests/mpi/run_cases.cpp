// A training run whose ranks are processes: it has the bits of thread ranks, and a rank that is killed ends it with a message
// that says where, without harm to the checkpoints, from which the same command goes on.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "comm/threads.h"
#include "record/run_record.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot {
namespace {

const std::vector<std::string> kOptions = {"--stages.0.batch=8", "--stages.0.micro_batch=1", "--stages.1.batch=8",
                                           "--stages.1.micro_batch=2", "--parallel.expert=2", "--parallel.shard_optimizer=true"};

class MpiRun : public ::testing::Test {
 protected:
  void SetUp() override { test::write_text(folder_ / "text.txt", test::tiny_text(4000)); }

  std::string recipe(const std::string& run) {
    const std::string path = folder_ / (run + ".toml");
    test::write_text(path, test::tiny_recipe(folder_ / run, folder_ / "data", folder_ / "text.txt"));
    return path;
  }
  /// `ingot launch -n 2 -- run`, by way of a shell that sets MPI's environment.
  std::vector<std::string> launch(const std::string& recipe, const std::vector<std::string>& more) {
    std::vector<std::string> command{"/bin/sh", "-c", INGOT_MPI_ENVIRONMENT + folder_.path() + " \"$@\"", "sh", INGOT_BINARY,
                                     "launch", "-n", "2", "--", "run", recipe, "--kernels=any"};
    command.insert(command.end(), kOptions.begin(), kOptions.end());
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  test::TempDir folder_;
};

/// Process ids of the ranks that run this recipe: the program itself, not its launchers.
std::vector<int> ranks_of(const std::string& recipe) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid == 0) continue;
    std::string words = test::read_text(entry.path() / "cmdline");
    std::replace(words.begin(), words.end(), '\0', ' ');
    if (words.rfind(std::string(INGOT_BINARY) + " run " + recipe, 0) == 0) found.push_back(pid);
  }
  return found;
}

TEST_F(MpiRun, ProcessesHaveTheBitsOfThreads) {
  const auto r = test::run_process(launch(recipe("processes"), {}));
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(r.output.find("step 24/24"), r.output.rfind("step 24/24")) << "two ranks print\n" << r.output;
  const Recipe threads = load_recipe(recipe("threads"), kOptions);
  log::set_level(log::Level::error);
  run_ranks(2, [&](ThreadRank& self) {
    set_kernel_policy(KernelPolicy::any);
    Trainer(real_file_system(), threads, StartMode::resume_or_start, &self).run();
  });
  log::set_level(log::Level::info);
  EXPECT_EQ(test::difference(folder_ / "processes", folder_ / "threads"), "");
}

TEST_F(MpiRun, AKilledRankEndsTheRunAndTheCommandGoesOn) {
  const std::string path = recipe("killed");
  test::Process run(launch(path, {"--stages.0.steps=100000"}));
  const std::string checkpoint = folder_ / "killed/checkpoints/latest";
  for (int tries = 0; !std::filesystem::exists(checkpoint) && tries < 300; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::vector<int> ranks = ranks_of(path);
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGKILL);
  const auto killed = run.wait();
  EXPECT_NE(killed.exit_code, 0);
  EXPECT_NE(killed.output.find(" at step "), std::string::npos) << killed.output;
  EXPECT_NE(killed.output.find("rank "), std::string::npos) << killed.output;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "killed/flight-0.json") || std::filesystem::exists(folder_ / "killed/flight-1.json"));
  const auto newest = CheckpointReader::open_newest(real_file_system(), folder_ / "killed/checkpoints");
  ASSERT_TRUE(newest);
  const int64_t steps = newest->step() + 6;
  const auto resumed = test::run_process(launch(path, {fmt::format("--stages.0.steps={}", steps), "--stages.1.steps=4"}));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find(fmt::format("resuming at step {} of {}", newest->step(), steps + 4)), std::string::npos) << resumed.output;
}

}  // namespace
}  // namespace ingot
