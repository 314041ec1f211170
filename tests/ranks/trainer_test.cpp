// Whole runs on several ranks: the same losses as one rank's, the same bits when repeated, and a checkpoint that any number
// of ranks resumes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/log.h"
#include "comm/threads.h"
#include "record/run_record.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test {
namespace {

struct RunLayout {
  const char* name;
  int ranks;
  std::vector<std::string> options;
};

const std::vector<RunLayout>& layouts() {
  static const std::vector<RunLayout> all = {
      {"one", 1, {}},
      {"dp2", 2, {}},
      {"dp4", 4, {}},
      {"ep2", 2, {"--parallel.expert=2"}},
      {"zero2", 2, {"--parallel.shard_optimizer=true"}},
      {"zero4", 4, {"--parallel.shard_optimizer=true"}},
      {"dp4_ep2", 4, {"--parallel.expert=2"}},
      {"zero4_ep2", 4, {"--parallel.expert=2", "--parallel.shard_optimizer=true"}},
  };
  return all;
}

/// Stops a run as Ctrl-C would, before step `step` (counted from where it started).
class Stopper final : public RunObserver {
 public:
  explicit Stopper(int step) : left_(step) {}
  void enters(RunPhase phase) override {
    if (phase == RunPhase::data && left_-- == 0) Trainer::interrupt();
  }
  void tensor(const std::string&, const Tensor&) override {}

 private:
  int left_;
};

class TrainerRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    level_ = log::level();
    log::set_level(log::Level::error);
    write_text(folder_ / "text.txt", tiny_text(4000));
  }
  void TearDown() override { log::set_level(level_); }

  /// Runs the tiny recipe on these ranks in folder `run`; `steps` >= 0: stops after that many.
  void run(const RunLayout& layout, const std::string& run, int steps = -1, std::vector<std::string> more = {}) {
    const std::string path = folder_ / (run + ".toml");
    write_text(path, tiny_recipe(folder_ / run, folder_ / "data", folder_ / "text.txt"));
    std::vector<std::string> options = layout.options;
    options.insert(options.end(), {"--stages.1.batch=8", "--stages.0.batch=8", "--stages.0.micro_batch=1", "--stages.1.micro_batch=2"});
    options.insert(options.end(), more.begin(), more.end());
    const Recipe recipe = load_recipe(path, options);
    run_ranks(layout.ranks, [&](ThreadRank& self) {
      set_kernel_policy(KernelPolicy::any);
      Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start, &self);
      Stopper stopper(steps - 1);
      if (steps > 0 && trainer.leads()) trainer.observe(&stopper);
      if (steps == 0) Trainer::interrupt();
      const TrainResult r = trainer.run();
      EXPECT_EQ(r.finished, steps < 0);
    });
  }
  std::vector<double> losses_of(const std::string& run) {
    std::vector<double> values;
    for (const std::string& line : losses(folder_ / run)) {
      std::istringstream in(line);
      std::string step, loss;
      in >> step >> loss;
      values.push_back(std::strtod(loss.c_str(), nullptr));
    }
    return values;
  }
  double worst_difference(const std::string& left, const std::string& right) {
    const std::vector<double> a = losses_of(left), b = losses_of(right);
    EXPECT_EQ(a.size(), b.size());
    EXPECT_EQ(a.size(), 24u);
    double worst = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(a[i]));
    return worst;
  }

  TempDir folder_;
  log::Level level_ = log::Level::info;
};

TEST_F(TrainerRanks, EveryLayoutFollowsOneRank) {
  for (const RunLayout& l : layouts()) {
    run(l, l.name);
    EXPECT_LE(worst_difference("one", l.name), 1e-4) << l.name;
  }
}

TEST_F(TrainerRanks, TensorRanksFollowOneRank) {
  const std::vector<std::string> model = {"--model.attention=gqa"};
  run({"one", 1, {}}, "one", -1, model);
  for (const RunLayout& l : {RunLayout{"tp2", 2, {"--parallel.tensor=2"}},
                             {"dp2_tp2", 4, {"--parallel.tensor=2"}},
                             {"zero2_tp2", 4, {"--parallel.tensor=2", "--parallel.shard_optimizer=true"}}}) {
    run(l, l.name, -1, model);
    EXPECT_LE(worst_difference("one", l.name), 1e-4) << l.name;
  }
}

TEST_F(TrainerRanks, ARunRepeatsBitForBit) {
  const RunLayout& layout = layouts().back();
  run(layout, "first");
  run(layout, "again");
  EXPECT_EQ(difference(folder_ / "first", folder_ / "again"), "");
}

TEST_F(TrainerRanks, AShardedOptimizerHasTheBitsOfAWholeOne) {
  for (const std::string moments : {"f32", "bf16_stochastic"})
    for (const int ranks : {2, 4}) {
      const std::string name = fmt::format("{}_{}", moments, ranks);
      const std::string storage = "--optimizer.first_moment=" + moments;
      run({"dp", ranks, {}}, "whole_" + name, -1, {"--optimizer.clip=0", storage});
      run({"zero", ranks, {"--parallel.shard_optimizer=true"}}, "shards_" + name, -1, {"--optimizer.clip=0", storage});
      // The norm alone is summed in another order, and with clip = 0 nothing depends on it.
      EXPECT_EQ(checkpoint_content(folder_ / ("whole_" + name)), checkpoint_content(folder_ / ("shards_" + name))) << name;
      EXPECT_EQ(losses_of("whole_" + name), losses_of("shards_" + name)) << name;
    }
}

TEST_F(TrainerRanks, StoppedAndResumedOnTheSameLayoutIsTheUndisturbedRun) {
  const RunLayout& layout = layouts().back();
  run(layout, "whole");
  run(layout, "parts", 9);
  run(layout, "parts");
  EXPECT_EQ(difference(folder_ / "whole", folder_ / "parts"), "");
}

/// Every ordered pair: the state that the second loads and saves again is the first's bit for bit, and goes on alike.
TEST_F(TrainerRanks, EveryLayoutResumesEveryOther) {
  ASSERT_GE(layouts().size(), 8u);
  run(layouts()[0], "whole");
  for (const RunLayout& from : layouts()) {
    run(from, from.name, 9);
    const auto state = checkpoint_content(folder_ / from.name);
    for (const RunLayout& to : layouts()) {
      if (&from == &to) continue;
      const std::string name = fmt::format("{}_to_{}", from.name, to.name);
      std::filesystem::copy(folder_ / from.name, folder_ / name, std::filesystem::copy_options::recursive);
      run(to, name, 0);
      EXPECT_EQ(checkpoint_content(folder_ / name), state) << name;
      run(to, name);
      EXPECT_LE(worst_difference("whole", name), 1e-4) << name;
      std::filesystem::remove_all(folder_ / name);
    }
  }
}

TEST_F(TrainerRanks, RanksThatDoNotFitAreRefused) {
  const auto message = [&](const RunLayout& layout, std::vector<std::string> more) {
    try {
      run(layout, "refused", -1, std::move(more));
    } catch (const Error& e) {
      return std::string(e.what()) + "; " + e.hint();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({"three", 3, {}}, {}),
            "stage 'first': a batch of 8 sequences does not divide among 3 data ranks in micro-batches of 1; choose "
            "stages.0.batch as a multiple of 3");
  EXPECT_EQ(message({"two", 2, {"--parallel.tensor=2"}}, {}),
            "Muon treats blocks of 'layers.0.attention.qkv.weight' apart that parallel.tensor cuts together; set "
            "optimizer.matrices = \"adamw\", or parallel.tensor = 1");
  EXPECT_EQ(message({"two", 2, {"--parallel.data=4"}}, {}),
            "parallel.data = 4 x parallel.tensor = 1 needs 4 ranks, but 2 were started; start that many (mpirun -n 4), or leave "
            "parallel.data at 0");
}

TEST_F(TrainerRanks, RanksWithDifferentRecipesAreRefused) {
  const std::string path = folder_ / "recipe.toml";
  write_text(path, tiny_recipe(folder_ / "run", folder_ / "data", folder_ / "text.txt"));
  try {
    run_ranks(2, [&](ThreadRank& self) {
      const Recipe recipe = load_recipe(path, {"--stages.1.batch=4", fmt::format("--run.seed={}", self.rank())});
      Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start, &self);
    });
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "ranks 0 and 1 do not run the same: 'seed = 0' and 'seed = 1'");
  }
}

}  // namespace
}  // namespace ingot::test
