// A training run whose ranks are processes: it has the bits of thread ranks. A killed rank ends it with a
// message that says where, and the same command resumes from the checkpoints.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "comm/threads.h"
#include "report/run_record.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot {
namespace {

const std::vector<std::string> kOptions = {"--phases.0.batch=8",  "--phases.0.micro_batch=1",
                                           "--phases.1.batch=8",  "--phases.1.micro_batch=2",
                                           "--parallel.expert=2", "--parallel.shard=optimizer"};

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
    std::vector<std::string> command{
        "/bin/sh", "-c",         std::string("exec ") + INGOT_MPI_ENVIRONMENT + folder_.path() + " \"$@\"",
        "sh",      INGOT_BINARY, "launch",
        "-n",      "2",          "--",
        "run",     recipe,       "--kernels=any"};
    command.insert(command.end(), kOptions.begin(), kOptions.end());
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  void wait_for_checkpoint(const std::string& run) {
    for (int tries = 0; !std::filesystem::exists(folder_ / (run + "/checkpoints/latest")) && tries < 300;
         ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
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
  test::Process run(launch(path, {"--phases.0.steps=100000"}));
  wait_for_checkpoint("killed");
  const std::vector<int> ranks = ranks_of(path);
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGKILL);
  const auto killed = run.wait();
  EXPECT_NE(killed.exit_code, 0);
  EXPECT_NE(killed.output.find(" at step "), std::string::npos) << killed.output;
  EXPECT_NE(killed.output.find("rank "), std::string::npos) << killed.output;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "killed/flight-0.json") ||
              std::filesystem::exists(folder_ / "killed/flight-1.json"));
  const auto newest = CheckpointReader::open_newest(real_file_system(), folder_ / "killed/checkpoints");
  ASSERT_TRUE(newest);
  const int64_t steps = newest->step() + 6;
  const auto resumed =
      test::run_process(launch(path, {fmt::format("--phases.0.steps={}", steps), "--phases.1.steps=4"}));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find(fmt::format("resuming at step {} of {}", newest->step(), steps + 4)),
            std::string::npos)
      << resumed.output;
}

/// `ingot run` as two ranks of which each has a folder, a program and arguments of its own.
struct Rank {
  std::string folder, program = INGOT_BINARY;
  std::vector<std::string> arguments;
};
test::ProcessResult run_unlike(const test::TempDir& folder, const std::vector<Rank>& ranks) {
  std::string command = INGOT_MPI_ENVIRONMENT + folder.path() + " " INGOT_MPIEXEC;
  for (const Rank& r : ranks) {
    command += fmt::format("{} -n 1 -wdir {} {} run {} --kernels=any", &r == ranks.data() ? "" : " :",
                           r.folder, r.program, folder / "unlike.toml");
    for (const auto& options : {kOptions, r.arguments})
      for (const std::string& o : options) command += " " + o;
  }
  return test::run_process({"/bin/sh", "-c", command});
}

TEST_F(MpiRun, RanksThatAreUnlikeAreRefusedBeforeTheFirstStep) {
  recipe("unlike");
  const auto expect_refused = [&](const std::vector<Rank>& ranks, const std::string& message) {
    const auto r = run_unlike(folder_, ranks);
    EXPECT_NE(r.exit_code, 0);
    EXPECT_NE(r.output.find(message), std::string::npos) << message << " in\n" << r.output;
    EXPECT_EQ(r.output.find("step 1/"), std::string::npos) << r.output;
  };
  const std::string here = folder_.path(), there = folder_ / "there", program = folder_ / "ingot";
  std::filesystem::create_directory(there);
  expect_refused({{here}, {here, INGOT_BINARY, {"--run.seed=4"}}},
                 "ranks 0 and 1 do not have the same program or recipe: 'seed = 3' and 'seed = 4'");
  std::filesystem::copy_file(INGOT_BINARY, program);
  std::ofstream(program, std::ios::app) << "another build";
  expect_refused({{here}, {here, program}},
                 "ranks 0 and 1 do not have the same program or recipe: 'program ");
  const std::vector<std::string> data{"--data.folder=data", "--data.sources.0.path=words.txt"};
  test::write_text(folder_ / "words.txt", test::tiny_text(4000));
  test::write_text(there + "/words.txt", test::tiny_text(4000, 2));
  expect_refused({{here, INGOT_BINARY, data}, {there, INGOT_BINARY, data}},
                 "ranks 0 and 1 do not have the same data: 'source 'words' train ");
  const std::vector<std::string> run{"--run.folder=run"};
  expect_refused({{here, INGOT_BINARY, run}, {there, INGOT_BINARY, run}},
                 "rank 1: it does not see the run folder 'run' of rank 0");
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "run"));
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "run"))
    EXPECT_NE(entry.path().filename().string().rfind("ranks-", 0), 0u) << entry.path();
}

TEST_F(MpiRun, EveryRankHasALogAndTheSelfTestCanBeLeftOut) {
  const std::string path = recipe("logs"), logs = folder_ / "logs/logs/rank-";
  const auto tested = test::run_process(launch(path, {"--phases.0.steps=4", "--phases.1.steps=2"}));
  ASSERT_EQ(tested.exit_code, 0) << tested.output;
  EXPECT_NE(tested.output.find("self-test    ranks exchange "), std::string::npos) << tested.output;
  for (const char* rank : {"0", "1"})
    EXPECT_NE(test::read_text(logs + rank + ".log").find("self-test    ranks exchange "), std::string::npos);
  EXPECT_NE(test::read_text(logs + "0.log").find("Z step 6/6"), std::string::npos);
  const auto untested =
      test::run_process(launch(path, {"--phases.0.steps=4", "--phases.1.steps=4", "--parallel.self_test="}));
  ASSERT_EQ(untested.exit_code, 0) << untested.output;
  EXPECT_EQ(untested.output.find("self-test"), std::string::npos) << untested.output;
  const auto refused = test::run_process(launch(path, {"--parallel.slowest_rank=2"}));
  EXPECT_NE(refused.output.find("parallel.slowest_rank: must be below 1, found 2"), std::string::npos)
      << refused.output;
}

/// Slurm pre-empts all ranks at once, or more than once; other launchers may reach one rank only.
TEST_F(MpiRun, ARankToldToEndStopsAllAfterTheSameStep) {
  const std::string path = recipe("told");
  test::Process run(launch(path, {"--phases.0.steps=100000"}));
  wait_for_checkpoint("told");
  const std::vector<int> ranks = ranks_of(path);
  ASSERT_EQ(ranks.size(), 2u);
  for (const int signal : {SIGTERM, SIGUSR1, SIGTERM}) ::kill(ranks[1], signal);
  const auto told = run.wait();
  EXPECT_EQ(told.exit_code, 130) << told.output;
  const auto newest = CheckpointReader::open_newest(real_file_system(), folder_ / "told/checkpoints");
  ASSERT_TRUE(newest);
  EXPECT_NE(told.output.find(fmt::format("interrupted at step {}, saved", newest->step())), std::string::npos)
      << told.output;
}

/// mpirun would give the ranks a second, or none.
TEST_F(MpiRun, CtrlCAtTheLauncherSaves) {
  const std::string path = recipe("ctrl-c");
  test::Process run(launch(path, {"--phases.0.steps=100000"}));
  wait_for_checkpoint("ctrl-c");
  run.signal(SIGINT);
  const auto stopped = run.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
  EXPECT_NE(stopped.output.find(", saved; run the same command to resume"), std::string::npos)
      << stopped.output;
}

}  // namespace
}  // namespace ingot
