// One rank fails in each part of a training step and of a pipeline schedule: all processes end in time, the
// survivors have written their flight records, the messages name the rank, the operation and the step, the
// checkpoints are whole, and the same command resumes to the same end.
#include <fmt/core.h>

#include <map>
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

/// Checkpoints begin after steps 4, 8, 12 ...; the fault comes in step 9 or, where it concerns a checkpoint,
/// soon after.
constexpr int kStep = 9;

struct RunShape {
  int ranks;
  std::vector<std::string> options;
};
const RunShape kSharded{2,
                        {"--phases.0.batch=8", "--phases.0.micro_batch=1", "--phases.1.batch=8",
                         "--phases.1.micro_batch=2", "--parallel.expert=2", "--parallel.shard=optimizer"}};
/// Three stages of which the middle one fails: it runs two warm-up forwards, then alternates, then runs
/// backwards.
const RunShape kPipeline{3,
                         {"--phases.0.batch=8", "--phases.0.micro_batch=1", "--phases.1.batch=8",
                          "--phases.1.micro_batch=1", "--model.layers=3", "--parallel.pipeline=3"}};

struct Phase {
  const char* name;
  const RunShape& shape;
  const char* event;   ///< of support/killer.h
  const char* number;  ///< see run_fault_program
  int victim;
  const char* operation = "";  ///< in which a survivor finds out
};
void PrintTo(const Phase& p, std::ostream* out) {
  *out << p.name;
}
const Phase kPhases[] = {{"Data", kSharded, "data", "0", 1},
                         {"Forward", kSharded, "forward", "5", 1},
                         {"BackwardAndReduction", kSharded, "backward", "5", 1},
                         {"GradientNorm", kSharded, "optimizer", "0", 1},
                         {"OptimizerExchange", kSharded, "update", "0", 1},
                         {"Records", kSharded, "records", "0", 1},
                         {"CheckpointCopy", kSharded, "copy", "0", 1},
                         {"CheckpointWrite", kSharded, "write", "2", 1},
                         {"CheckpointCommit", kSharded, "rename", "0", 0},
                         {"CheckpointCommitted", kSharded, "rename", "1", 0},
                         {"PipelineWarmUp", kPipeline, "forward", "5", 1, "send_recv"},
                         {"PipelineSteady", kPipeline, "forward", "4/8", 1, "send_recv"},
                         {"PipelineCoolDown", kPipeline, "backward", "7/8", 1, "send_recv"}};

std::string recipe_in(const test::TempDir& folder) {
  test::write_text(folder / "text.txt", test::tiny_text(4000));
  test::write_text(folder / "recipe.toml",
                   test::tiny_recipe(folder / "run", folder / "data", folder / "text.txt"));
  return folder / "recipe.toml";
}

/// The run that nothing happens to, on thread ranks.
std::string undisturbed(const RunShape& shape) {
  static std::map<const RunShape*, test::TempDir> folders;
  const test::TempDir& folder = folders[&shape];
  if (!std::filesystem::exists(folder / "run")) {
    const Recipe recipe = load_recipe(recipe_in(folder), shape.options);
    log::set_level(log::Level::error);
    run_ranks(shape.ranks, [&](ThreadRank& self) {
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
    std::string command = fmt::format("{} {} {} {} {} {} {} {} {} {}", INGOT_RUN_FAULT_PROGRAM, fault,
                                      p.event, p.number, fault == "none" ? 0 : kStep, p.victim,
                                      folder_.path(), kReport, abort, recipe_in(folder_));
    for (const std::string& o : p.shape.options) command += " " + o;
    Outcome o = test::run_ranks_of(command, p.shape.ranks, folder_.path());
    o.folder = folder_ / "run";  // where the records are
    return o;
  }
  /// What survivors printed and recorded: the launcher may kill one before it has printed, but not before its
  /// record.
  std::string said_by_survivors(const Outcome& o) {
    std::string text = o.output;
    for (int rank = 0; rank < GetParam().shape.ranks; ++rank) {
      if (rank == GetParam().victim) continue;
      const nlohmann::json record = o.flight(rank);
      EXPECT_TRUE(record.is_object()) << rank << "\n" << o.output;
      if (record.is_object()) text += record["reason"].get<std::string>() + "\n";
    }
    return text;
  }
  void expect_ended_and_resumed(const Outcome& o) {
    const Phase& p = GetParam();
    double struck = 0;
    std::ifstream(folder_ / "struck") >> struck;
    ASSERT_GT(struck, 0) << "nothing happened: " << o.output;
    EXPECT_NE(o.code, 0) << o.output;
    EXPECT_LT(o.ended - struck, kAbort + 5) << o.output;
    const std::string said = said_by_survivors(o);
    const std::regex message(
        fmt::format("rank [^{0}] in {1}.* at step \\d+.*missing: rank {0} ", p.victim, p.operation));
    EXPECT_TRUE(std::regex_search(said, message)) << said;
    const auto newest = CheckpointReader::open_newest(real_file_system(), folder_ / "run/checkpoints");
    ASSERT_TRUE(newest);
    EXPECT_GE(newest->step(), 4) << "the first one was complete";
    const Outcome again = run("none", 30);
    EXPECT_EQ(again.code, 0) << again.output;
    EXPECT_NE(again.output.find(fmt::format("resuming at step {} of 24", newest->step())), std::string::npos)
        << again.output;
    EXPECT_EQ(test::difference(folder_ / "run", undisturbed(p.shape)), "");
  }
  test::TempDir folder_;
};

TEST_P(RunFault, AKilledRankEndsAllAndTheRunGoesOn) {
  expect_ended_and_resumed(run("kill", kAbort));
}

TEST_P(RunFault, AStoppedRankEndsAllAfterTheDeadlineAndTheRunGoesOn) {
  expect_ended_and_resumed(run("stop", kAbort));
}

TEST_P(RunFault, ALateRankChangesNothing) {
  const Outcome o = run("delay", 30);
  EXPECT_EQ(o.code, 0) << o.output;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "struck")) << o.output;
  EXPECT_EQ(test::difference(folder_ / "run", undisturbed(GetParam().shape)), "");
}

INSTANTIATE_TEST_SUITE_P(Mpi, RunFault, testing::ValuesIn(kPhases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ingot
