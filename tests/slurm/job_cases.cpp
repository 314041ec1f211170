// Jobs of four ranks under a real Slurm (with_slurm starts it and this program), submitted with the batch
// file of recipes/: jobs that are pre-empted, requeued, out of time or cancelled are saved, and those that
// resume end with the weights of an undisturbed run.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "comm/threads.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot {
namespace {

/// Long enough to be interrupted after the first checkpoint.
const std::vector<std::string> kOptions = {
    "--phases.0.batch=8", "--phases.0.micro_batch=1", "--phases.0.steps=3000", "--phases.1.batch=8",
    "--phases.1.micro_batch=2", "--parallel.expert=2", "--parallel.shard=optimizer", "--checkpoint.every=100",
    "--evaluation.every=1000",
    // Four ranks share fewer cores with other tests, so a slow rank is no finding.
    "--samples.every=1000", "--parallel.slowest_rank=0"};

void pause(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::string slurm(const std::string& command) {
  const auto r = test::run_process({"/bin/sh", "-c", command});
  EXPECT_EQ(r.exit_code, 0) << command << "\n" << r.output;
  return r.output;
}

class SlurmJob : public ::testing::Test {
 protected:
  static std::string recipe(const test::TempDir& folder) {
    test::write_text(folder / "text.txt", test::tiny_text(4000));
    test::write_text(folder / "recipe.toml",
                     test::tiny_recipe(folder / "run", folder / "data", folder / "text.txt"));
    return folder / "recipe.toml";
  }
  /// The undisturbed run on four ranks.
  static std::string undisturbed() {
    static const test::TempDir folder;
    if (!std::filesystem::exists(folder / "run")) {
      const Recipe r = load_recipe(recipe(folder), kOptions);
      log::set_level(log::Level::error);
      run_ranks(4, [&](ThreadRank& self) {
        set_kernel_policy(KernelPolicy::any);
        Trainer(real_file_system(), r, StartMode::resume_or_start, &self).run();
      });
      log::set_level(log::Level::info);
    }
    return folder / "run";
  }
  /// Submits the run and waits for its first checkpoint.
  void start(const std::string& sbatch_options) {
    const std::string program = std::filesystem::path(INGOT_BINARY).parent_path();
    std::string command = fmt::format("PATH={}:$PATH sbatch --parsable --output={} --cpus-per-task=1 {} ",
                                      program, folder_ / "log", sbatch_options);
    command += fmt::format("{}/recipes/slurm.sbatch {} --kernels=any", INGOT_SOURCE_DIR, recipe(folder_));
    for (const std::string& o : kOptions) command += " " + o;
    job_ = std::stoi(slurm(command));
    wait_for("a checkpoint", [&] { return std::filesystem::exists(folder_ / "run/checkpoints/latest"); });
  }
  void wait_for(const char* what, const std::function<bool()>& there) {
    // 3,000 steps, a tenth of a second each where four ranks share two cores with other tests.
    constexpr double kLongest = 600;
    const double begin = monotonic_seconds();
    while (!there()) {
      ASSERT_LT(monotonic_seconds() - begin, kLongest)
          << what << "\n"
          << slurm("scontrol show job " + std::to_string(job_)) << log();
      pause(0.1);
    }
  }
  /// A field of the job, "JobState" and the like.
  std::string field(const std::string& name) {
    std::smatch found;
    const std::string text = slurm("scontrol show job " + std::to_string(job_));
    return std::regex_search(text, found, std::regex(" " + name + "=(\\S*)")) ? found[1].str() : text;
  }
  void wait_for_state(const std::string& state) {
    wait_for(state.c_str(), [&] { return field("JobState") == state; });
  }
  std::string log() { return slurm("grep -v '^step ' " + (folder_ / "log")); }
  /// The step of the first line "interrupted at step N"; 0: none.
  int64_t interrupted_at() {
    std::smatch found;
    const std::string text = log();
    return std::regex_search(text, found, std::regex("interrupted at step (\\d+), saved"))
               ? std::stoll(found[1])
               : 0;
  }
  void expect_resumed_to_the_same_end() {
    wait_for_state("COMPLETED");
    EXPECT_EQ(field("Restarts"), "1");
    EXPECT_GT(interrupted_at(), 0) << log();
    EXPECT_NE(log().find(fmt::format("resuming at step {} of 3010", interrupted_at())), std::string::npos)
        << log();
    EXPECT_EQ(test::difference(folder_ / "run", undisturbed()), "");
  }
  test::TempDir folder_;
  int job_ = 0;
};

TEST_F(SlurmJob, PreemptedItIsRequeuedAndEndsWithTheSameWeights) {
  start("--partition=low");
  slurm(fmt::format("sbatch --partition=high --ntasks=8 --output={} --wrap 'sleep 1'", folder_ / "other"));
  expect_resumed_to_the_same_end();
}

TEST_F(SlurmJob, RequeuedByAnAdministratorItGoesOn) {
  start("");
  slurm(fmt::format("scontrol requeue {}", job_));
  expect_resumed_to_the_same_end();
}

/// Uses what --signal=USR1@300 sends, which takes Slurm up to a minute.
TEST_F(SlurmJob, ToldOfItsTimeLimitItSavesAndRequeuesItself) {
  start("");
  slurm(fmt::format("scancel --signal=USR1 {}", job_));
  expect_resumed_to_the_same_end();
}

TEST_F(SlurmJob, CancelledItIsSavedAndStaysCancelled) {
  start("");
  slurm(fmt::format("scancel {}", job_));
  wait_for_state("CANCELLED");
  wait_for("the end of the job", [&] { return slurm("squeue --noheader").empty(); });
  EXPECT_GT(interrupted_at(), 0) << log();
  const auto newest = CheckpointReader::open_newest(real_file_system(), folder_ / "run/checkpoints");
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step(), interrupted_at());
}

}  // namespace
}  // namespace ingot
