// One rank goes wrong in each phase of a training step and of a pipeline's schedule: everything ends in time, the survivors have
// written their flight records, what is printed names the rank, the operation and the step, the checkpoints are whole, and the
// same command goes on to the same end.
#include <fmt/core.h>

#include <regex>

#include "base/log.h"
#include "checkpoint/reader.h"
#include "comm/threads.h"
#include "mpi/fault_run.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot {
namespace {

using test::kAbort;
using test::kReport;
using test::Outcome;

/// Checkpoints are begun after steps 4, 8, 12 ...; the fault comes in step 9 or, where it is of a checkpoint, soon after.
constexpr int kStep = 9;
const std::vector<std::string> kOptions = {"--stages.0.batch=8", "--stages.0.micro_batch=1", "--stages.1.batch=8", "--stages.1.micro_batch=2",
                                           "--parallel.expert=2", "--parallel.shard=optimizer"};

struct Phase {
  const char* name;
  const char* event;  ///< of support/killer.h
  int number, victim;
};
const Phase kPhases[] = {{"Data", "data", 0, 1},          {"Forward", "forward", 5, 1},    {"BackwardAndReduction", "backward", 5, 1},
                         {"GradientNorm", "optimizer", 0, 1}, {"OptimizerExchange", "update", 0, 1}, {"Records", "records", 0, 1},
                         {"CheckpointCopy", "copy", 0, 1}, {"CheckpointWrite", "write", 2, 1}, {"CheckpointCommit", "rename", 0, 0},
                         {"CheckpointCommitted", "rename", 1, 0}};

std::string recipe_in(const test::TempDir& folder) {
  test::write_text(folder / "text.txt", test::tiny_text(4000));
  test::write_text(folder / "recipe.toml", test::tiny_recipe(folder / "run", folder / "data", folder / "text.txt"));
  return folder / "recipe.toml";
}

/// The run that nothing happens to, on two thread ranks.
std::string undisturbed() {
  static const test::TempDir folder;
  if (!std::filesystem::exists(folder / "run")) {
    const Recipe recipe = load_recipe(recipe_in(folder), kOptions);
    log::set_level(log::Level::error);
    run_ranks(2, [&](ThreadRank& self) {
      set_kernel_policy(KernelPolicy::any);
      Trainer(real_file_system(), recipe, StartMode::resume_or_start, &self).run();
    });
    log::set_level(log::Level::info);
  }
  return folder / "run";
}

class RunFault : public testing::TestWithParam<Phase> {
 protected:
  Outcome run(const std::string& fault, double abort) {
    const Phase& p = GetParam();
    std::string command = fmt::format("{} {} {} {} {} {} {} {} {} {}", INGOT_RUN_FAULT_PROGRAM, fault, p.event, p.number, fault == "none" ? 0 : kStep,
                                      p.victim, folder_.path(), kReport, abort, recipe_in(folder_));
    for (const std::string& o : kOptions) command += " " + o;
    Outcome o = test::run_ranks_of(command, 2, folder_.path());
    o.folder = folder_ / "run";  // where the records are
    return o;
  }
  void expect_ended_and_resumed(const Outcome& o) {
    const int survivor = 1 - GetParam().victim;
    double struck = 0;
    std::ifstream(folder_ / "struck") >> struck;
    ASSERT_GT(struck, 0) << "nothing happened: " << o.output;
    EXPECT_NE(o.code, 0) << o.output;
    EXPECT_LT(o.ended - struck, kAbort + 5) << o.output;
    EXPECT_TRUE(o.flight(survivor).is_object()) << o.output;
    const std::regex message(fmt::format("rank {} in .* at step \\d+.*missing: rank {} ", survivor, GetParam().victim));
    EXPECT_TRUE(std::regex_search(o.output, message)) << o.output;
    const auto newest = CheckpointReader::open_newest(real_file_system(), folder_ / "run/checkpoints");
    ASSERT_TRUE(newest);
    EXPECT_GE(newest->step(), 4) << "the first one was complete";
    const Outcome again = run("none", 30);
    EXPECT_EQ(again.code, 0) << again.output;
    EXPECT_NE(again.output.find(fmt::format("resuming at step {} of 24", newest->step())), std::string::npos) << again.output;
    EXPECT_EQ(test::difference(folder_ / "run", undisturbed()), "");
  }
  test::TempDir folder_;
};

TEST_P(RunFault, AKilledRankEndsAllAndTheRunGoesOn) { expect_ended_and_resumed(run("kill", kAbort)); }

TEST_P(RunFault, AStoppedRankEndsAllAfterTheDeadlineAndTheRunGoesOn) { expect_ended_and_resumed(run("stop", kAbort)); }

TEST_P(RunFault, ALateRankChangesNothing) {
  const Outcome o = run("delay", 30);
  EXPECT_EQ(o.code, 0) << o.output;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "struck")) << o.output;
  EXPECT_EQ(test::difference(folder_ / "run", undisturbed()), "");
}

INSTANTIATE_TEST_SUITE_P(Mpi, RunFault, testing::ValuesIn(kPhases), [](const auto& info) { return std::string(info.param.name); });

class PipelineFault : public testing::TestWithParam<const char*> {
 protected:
  Outcome run(const std::string& fault, double abort) {
    return test::run_ranks_of(fmt::format("{} {} {} {} {} {}", INGOT_PIPELINE_FAULT_PROGRAM, fault, GetParam(), folder_.path(), kReport, abort), 3,
                              folder_.path());
  }
  void expect_ended(const Outcome& o) {
    EXPECT_NE(o.code, 0) << o.output;
    EXPECT_LT(o.seconds, kAbort + 5) << o.output;
    EXPECT_EQ(o.output.find("all steps done"), std::string::npos);
    EXPECT_TRUE(o.flight(0).is_object() && o.flight(2).is_object()) << o.output;
    const std::regex message("rank [02] in send_recv .* at step 3.*missing: rank 1 ");
    EXPECT_TRUE(std::regex_search(o.output, message)) << o.output;
  }
  test::TempDir folder_;
};

TEST_P(PipelineFault, AKilledStageEndsAll) { expect_ended(run("kill", kAbort)); }
TEST_P(PipelineFault, AStoppedStageEndsAllAfterTheDeadline) { expect_ended(run("stop", kAbort)); }
TEST_P(PipelineFault, ALateStageIsWaitedFor) {
  const Outcome o = run("delay", 30);
  EXPECT_EQ(o.code, 0) << o.output;
  EXPECT_NE(o.output.find("all steps done"), std::string::npos) << o.output;
  EXPECT_NE(o.output.find("waits for "), std::string::npos) << o.output;
}

std::string phase_name(const testing::TestParamInfo<const char*>& info) {
  return info.param == std::string("steady") ? "Steady" : info.param == std::string("warm-up") ? "WarmUp" : "CoolDown";
}
INSTANTIATE_TEST_SUITE_P(Mpi, PipelineFault, testing::Values("warm-up", "steady", "cool-down"), phase_name);

}  // namespace
}  // namespace ingot
