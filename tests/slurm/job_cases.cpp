// Jobs of four ranks under a real Slurm (with_slurm starts it and this program), submitted with the batch
// file of recipes/: jobs that are pre-empted, requeued, out of time or cancelled are saved, and those that
// resume end with the weights of an undisturbed run.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "checkpoint/reader.h"
#include "slurm_run.h"
#include "support/tiny_run.h"

namespace ingot::test {
namespace {

class SlurmJob : public ::testing::Test {
 protected:
  /// Submits the run and waits for its first checkpoint.
  void start(const std::string& sbatch_options) {
    const std::string program = std::filesystem::path(INGOT_BINARY).parent_path();
    std::string command = fmt::format("PATH={}:$PATH sbatch --parsable --output={} --cpus-per-task=1 {} ",
                                      program, folder_ / "log", sbatch_options);
    command +=
        fmt::format("{}/recipes/slurm.sbatch {} --kernels=any", INGOT_SOURCE_DIR, slurm_recipe(folder_));
    for (const std::string& o : kSlurmOptions) command += " " + o;
    job_ = std::stoi(slurm(command));
    wait_for("a checkpoint", [&] { return std::filesystem::exists(folder_ / "run/checkpoints/latest"); });
  }
  void wait_for(const std::string& what, const std::function<bool()>& there) {
    ASSERT_TRUE(comes(there)) << what << "\n" << slurm("scontrol show job " + std::to_string(job_)) << log();
  }
  /// A field of the job, "JobState" and the like.
  std::string field(const std::string& name) {
    std::smatch found;
    const std::string text = slurm("scontrol show job " + std::to_string(job_));
    return std::regex_search(text, found, std::regex(" " + name + "=(\\S*)")) ? found[1].str() : text;
  }
  void wait_for_state(const std::string& state) {
    wait_for(state, [&] { return field("JobState") == state; });
  }
  std::string log() { return slurm("grep -v '^step ' " + (folder_ / "log")); }
  void expect_resumed_to_the_same_end() {
    wait_for_state("COMPLETED");
    EXPECT_EQ(field("Restarts"), "1");
    EXPECT_GT(interrupted_at(log()), 0) << log();
    EXPECT_NE(log().find(fmt::format("resuming at step {} of 1210", interrupted_at(log()))),
              std::string::npos)
        << log();
    EXPECT_EQ(difference(folder_ / "run", undisturbed_run()), "");
  }
  TempDir folder_;
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
  EXPECT_GT(interrupted_at(log()), 0) << log();
  const auto newest = CheckpointReader::open_newest(real_file_system(), folder_ / "run/checkpoints");
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step(), interrupted_at(log()));
}

}  // namespace
}  // namespace ingot::test
