// Silent corruption: one bit of one rank's memory is changed, and the run ends with the right rank named, or
// the right pair; clean runs of many layouts end without an alarm; steps made again find what no vote can.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "report/failure_report.h"
#include "report/run_record.h"
#include "support/digest_run.h"
#include "support/tiny_run.h"
#include "train/digest_lines.h"
#include "train/replay.h"
#include "train/run_failure.h"

namespace ingot::test::corruption_ranks_test {
namespace {

namespace fs = std::filesystem;
using Ranks = std::vector<int>;

bool is_long() {
  return std::getenv("INGOT_LONG_TESTS") != nullptr;
}

class Corruption : public ::testing::Test {
 protected:
  void SetUp() override { write_text(folder_ / "text.txt", tiny_text(2000)); }
  std::string path(const std::string& name) { return folder_ / name; }
  std::string recipe(const std::string& run) {
    write_text(path(run + ".toml"), digest_recipe(folder_.path(), run));
    return path(run + ".toml");
  }
  RecordedDigests digests(const std::string& run) {
    return read_digests(real_file_system(), path(run + "/" + kDigestsFile));
  }
  ReplayReport replay(const std::string& run, int ranks, int64_t from, int64_t steps) {
    ReplayReport report;
    set_kernel_policy(KernelPolicy::any);
    run_ranks(ranks, [&](ThreadRank& self) {
      const ReplayReport mine =
          replay_run(real_file_system(), {path(run), from, steps, path(run + "-replay")}, self);
      if (self.rank() == 0) report = mine;
    });
    return report;
  }
  /// Every file of a folder with its size and time, but for the lock that a start takes.
  std::map<std::string, std::pair<uintmax_t, fs::file_time_type>> files(const std::string& run) {
    std::map<std::string, std::pair<uintmax_t, fs::file_time_type>> found;
    for (const auto& f : fs::recursive_directory_iterator(path(run)))
      if (f.is_regular_file()) found[f.path().string()] = {f.file_size(), f.last_write_time()};
    return found;
  }
  /// Makes `flips` runs of which each has one bit changed at a random place. All end naming `expected` of the
  /// rank, but where rounding swallowed the bit, and then the run ends as the clean one.
  void expect_found(const std::vector<std::string>& layout, int ranks, int flips,
                    const std::function<Ranks(int)>& expected);
  /// The same of activations, which are found where a step's gradients are made twice.
  void expect_found_again(const std::vector<std::string>& layout, int ranks, int flips,
                          const std::function<Ranks(int)>& expected);
  TempDir folder_;
};

void Corruption::expect_found(const std::vector<std::string>& layout, int ranks, int flips,
                              const std::function<Ranks(int)>& expected) {
  run_with_flip(recipe("clean"), layout, ranks, {});
  const auto clean = checkpoint_content(path("clean"));
  const Random random(5, RandomPurpose::test, 74);
  constexpr FlipPlace kPlaces[] = {FlipPlace::weight, FlipPlace::gradient, FlipPlace::moment};
  int found = 0, harmless = 0;
  for (int i = 0; i < flips; ++i) {
    const auto n = static_cast<uint64_t>(i);
    const Flip flip{.place = kPlaces[i % 3],
                    .rank = static_cast<int>(random.below(3 * n, static_cast<uint64_t>(ranks))),
                    // Step 1 has no optimizer state yet; what step 8 leaves is compared at its end.
                    .step = 2 + static_cast<int64_t>(random.below(3 * n + 1, 7)),
                    .seed = n};
    SCOPED_TRACE(
        fmt::format("flip {}: {} of rank {} at step {}", i, name_of(flip.place), flip.rank, flip.step));
    const std::string run = fmt::format("flip-{}", i);
    try {
      EXPECT_TRUE(run_with_flip(recipe(run), layout, ranks, flip));
      // Rounding may swallow a last bit; then nothing that follows knows of it.
      EXPECT_EQ(checkpoint_content(path(run)) == clean, true) << "a flip that matters was not found";
      ++harmless;
    } catch (const RunError& e) {
      ++found;
      EXPECT_EQ(e.fault(), FailureKind::mismatch) << e.what();
      Ranks named;
      for (const Suspect& s : e.suspects()) named.push_back(s.rank);
      // Where ranks gather each other's shards, a weight that is found before the gather is its rank's alone.
      if (named != Ranks{flip.rank}) {
        EXPECT_EQ(named, expected(flip.rank)) << e.what();
      }
      // Found by the next comparison; the last agreement was before the flip.
      EXPECT_GE(e.trouble_step(), flip.step - 1) << e.what();
      EXPECT_LE(e.trouble_step(), flip.step) << e.what();
      const auto failure = FailureReport::parse(read_text(path(run + "/failure.json")), 0);
      ASSERT_TRUE(failure);
      EXPECT_EQ(failure->kind, FailureKind::mismatch);
      EXPECT_EQ(failure->rank, named.front());
      EXPECT_EQ(failure->suspects.size(), named.size());
      EXPECT_EQ(failure->trouble_step, e.trouble_step());
      EXPECT_LE(failure->step, flip.step + 2);
    }
    fs::remove_all(path(run));
  }
  EXPECT_GE(found, flips * 8 / 10) << harmless << " of " << flips << " were harmless";
}

TEST_F(Corruption, OfThreeCopiesTheRightRankIsNamed) {
  expect_found({}, 3, is_long() ? 200 : 24, [](int rank) { return Ranks{rank}; });
}

TEST_F(Corruption, OfTwoCopiesTheRightPairIsNamed) {
  expect_found({}, 2, is_long() ? 100 : 12, [](int) { return Ranks{0, 1}; });
}

TEST_F(Corruption, OfTwoCopiesOfShardedStateThePairOfTheShardIsNamed) {
  expect_found({"--parallel.shard=optimizer", "--parallel.shard_ranks=2"}, 4, is_long() ? 60 : 14,
               [](int rank) {
                 return rank % 2 == 0 ? Ranks{0, 2} : Ranks{1, 3};
               });
}

TEST_F(Corruption, MemoryAtRestIsCheckedOnOneRankToo) {
  const std::vector<std::string> options = {"--health.check_at_rest=true"};
  run_with_flip(recipe("clean"), options, 1, {});
  for (const FlipPlace place : {FlipPlace::weight, FlipPlace::moment})
    for (const int ranks : {1, 3})
      for (uint64_t seed = 0; seed < 8; ++seed) {
        const std::string run = fmt::format("rest-{}-{}-{}", name_of(place), ranks, seed);
        SCOPED_TRACE(run);
        const Flip flip{place, ranks - 1, 4, seed};
        try {
          run_with_flip(recipe(run), options, ranks, flip);
          ADD_FAILURE() << "was not found";
        } catch (const RunError& e) {
          EXPECT_EQ(e.fault(), FailureKind::mismatch) << e.what();
          ASSERT_EQ(e.suspects().size(), 1U);
          EXPECT_EQ(e.suspects()[0].rank, flip.rank);
          EXPECT_EQ(e.trouble_step(), 3) << "the checkpoint of step 3 might have the bit";
        }
        fs::remove_all(path(run));
      }
}

TEST_F(Corruption, CleanRunsOfEightLayoutsRaiseNoAlarm) {
  struct Layout {
    const char* name;
    int ranks;
    std::vector<std::string> options;
  };
  const std::vector<Layout> layouts = {
      {"dp4", 4, {}},
      {"dp4_ep2", 4, {"--parallel.expert=2"}},
      {"zero4_ep2", 4, {"--parallel.expert=2", "--parallel.shard=optimizer", "--parallel.shard_ranks=2"}},
      {"full4_ep2", 4, {"--parallel.expert=2", "--parallel.shard=full", "--parallel.shard_ranks=2"}},
      {"dp2_tp2", 4, {"--parallel.tensor=2"}},
      {"dp2_cp2", 4, {"--parallel.context=2"}},
      {"dp2_pp2", 4, {"--parallel.pipeline=2"}},
      {"bf16_zero2", 2, {"--parallel.shard=optimizer", "--run.precision=bf16"}},
  };
  for (const Layout& l : layouts) {
    SCOPED_TRACE(l.name);
    write_text(path("clean.toml"), tiny_recipe(path(l.name), path("moe-data"), path("text.txt")));
    std::vector<std::string> options = l.options;
    options.insert(options.end(),
                   {"--health.agree_every=1", "--health.check_at_rest=true", "--health.replay_every=2",
                    "--phases.0.batch=8", "--phases.1.batch=8", "--phases.0.micro_batch=1",
                    "--phases.1.micro_batch=2", "--evaluation.every=0", "--samples.prompts=[]"});
    if (is_long())
      options.insert(options.end(),
                     {"--phases.0.steps=700", "--phases.1.steps=560", "--checkpoint.every=100"});
    ASSERT_NO_THROW(run_with_flip(path("clean.toml"), options, l.ranks, {}));
    const RecordedDigests d = digests(l.name);
    EXPECT_EQ(d.steps.size(), is_long() ? 1260U : 24U);
    EXPECT_EQ(d.starts.size(), 1U);
    EXPECT_EQ(d.starts[0].ranks, l.ranks);
    for (const auto& [step, s] : d.steps) {
      EXPECT_EQ(s.gradients.size(), static_cast<size_t>(l.ranks));
      EXPECT_EQ(s.copies.size(), static_cast<size_t>(l.ranks));
    }
    // Not a constant: own gradients differ from step to step, and between data ranks.
    EXPECT_NE(d.steps.at(1).gradients, d.steps.at(2).gradients);
    EXPECT_NE(d.steps.at(1).gradients.front(), d.steps.at(1).gradients.back());
  }
}

void Corruption::expect_found_again(const std::vector<std::string>& layout, int ranks, int flips,
                                    const std::function<Ranks(int)>& expected) {
  std::vector<std::string> options = layout;
  options.emplace_back("--health.replay_every=2");
  run_with_flip(recipe("never"), layout, ranks, {});
  run_with_flip(recipe("clean"), options, ranks, {});
  const auto clean = checkpoint_content(path("clean"));
  EXPECT_EQ(clean, checkpoint_content(path("never"))) << "replays change no bit of a run";
  const Random random(5, RandomPurpose::test, 75);
  constexpr FlipPlace kPlaces[] = {FlipPlace::activation, FlipPlace::replayed, FlipPlace::core};
  int found = 0;
  for (int i = 0; i < flips; ++i) {
    const auto n = static_cast<uint64_t>(i);
    const FlipPlace place = kPlaces[i % (ranks > 1 ? 3 : 2)];  // a core alone repeats its own errors
    const int64_t even = 2 + 2 * static_cast<int64_t>(random.below(2 * n, 3));
    // What comes once is found in a step that is made again, what a core does at the next such step.
    const Flip flip{place, static_cast<int>(random.below(2 * n + 1, static_cast<uint64_t>(ranks))),
                    place == FlipPlace::core ? even - 1 : even, n};
    SCOPED_TRACE(
        fmt::format("flip {}: {} of rank {} at step {}", i, name_of(flip.place), flip.rank, flip.step));
    const std::string run = fmt::format("flip-{}", i);
    try {
      run_with_flip(recipe(run), options, ranks, flip);
      // Rounding may swallow the bit; then nothing that follows knows of it.
      EXPECT_EQ(checkpoint_content(path(run)) == clean, true) << "a flip that matters was not found";
    } catch (const RunError& e) {
      ++found;
      EXPECT_EQ(e.fault(), FailureKind::mismatch) << e.what();
      Ranks named;
      for (const Suspect& s : e.suspects()) named.push_back(s.rank);
      EXPECT_EQ(named, expected(flip.rank)) << e.what();
      EXPECT_EQ(e.trouble_step(), even - 1) << "after the last step that was equal: " << e.what();
    }
    fs::remove_all(path(run));
  }
  EXPECT_GE(found, flips * 9 / 10);
}

TEST_F(Corruption, AGradientThatThreeRanksMakeNamesTheWrongOne) {
  expect_found_again({}, 3, is_long() ? 200 : 12, [](int rank) { return Ranks{rank}; });
}

TEST_F(Corruption, AGradientThatTwoRanksMakeNamesThePair) {
  expect_found_again({}, 2, is_long() ? 60 : 6, [](int) { return Ranks{0, 1}; });
}

TEST_F(Corruption, AGradientThatOneRankMakesTwiceNamesIt) {
  expect_found_again({}, 1, 4, [](int rank) { return Ranks{rank}; });
}

TEST_F(Corruption, ShardedWeightsAreGatheredForReplaysToo) {
  expect_found_again({"--parallel.shard=full"}, 3, is_long() ? 30 : 3, [](int rank) { return Ranks{rank}; });
}

TEST_F(Corruption, KeysSayWhatIsRecorded) {
  run_with_flip(recipe("off"), {"--health.digest_every=0", "--health.agree_every=0"}, 2, {});
  EXPECT_FALSE(fs::exists(path("off/digests.jsonl")));
  run_with_flip(recipe("some"), {"--health.digest_every=3", "--health.agree_every=100"}, 2, {});
  std::string steps;
  for (const auto& [step, d] : digests("some").steps)
    steps += fmt::format("{}{}{} ", step, d.gradients.empty() ? "" : "g", d.copies.empty() ? "" : "c");
  EXPECT_EQ(steps, "3g 4c 5c 6g 8c ") << "copies before each checkpoint: every fourth, and ends of phases";
}

TEST_F(Corruption, AResumedRunHasTheDigestsOfAWholeOne) {
  run_with_flip(recipe("whole"), {}, 2, {});
  EXPECT_THROW(run_with_flip(recipe("cut"), {}, 2, {FlipPlace::weight, 1, 7, 3}), RunError);
  run_with_flip(recipe("cut"), {}, 2, {});
  EXPECT_EQ(digests("cut").steps, digests("whole").steps);
  EXPECT_EQ(digests("cut").starts.size(), 2U);
  EXPECT_EQ(difference(path("cut"), path("whole")), "");
}

TEST_F(Corruption, AReplayFindsWhatNoVoteCan) {
  // An activation: all ranks add the same wrong gradient, so all copies stay equal.
  run_with_flip(recipe("wrong"), {}, 3, {FlipPlace::activation, 1, 6, 1});
  const auto before = files("wrong");
  const ReplayReport r = replay("wrong", 3, 4, 4);
  ASSERT_TRUE(r.difference);
  EXPECT_EQ(r.different_step, 6);
  EXPECT_EQ(r.difference->what, "gradients");
  EXPECT_EQ(r.difference->ranks, Ranks{1});
  EXPECT_EQ(r.compared, 1);
  EXPECT_EQ(files("wrong"), before) << "the replay touched the run";
  const ReplayReport start = replay("wrong", 3, 0, 5);
  EXPECT_FALSE(start.difference);
  EXPECT_EQ(start.compared, 5) << "across the end of the first phase";
  EXPECT_EQ(start.copies, 3) << "steps 2, 4, 5";
}

TEST_F(Corruption, ReplaysOfCleanRunsAreEqualOnManyLayouts) {
  const std::vector<std::vector<std::string>> layouts = {
      {}, {"--parallel.shard=optimizer"}, {"--parallel.tensor=2"}, {"--parallel.shard=full"}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::string run = fmt::format("clean-{}", i);
    run_with_flip(recipe(run), layouts[i], 4, {});
    for (const int64_t from : {0, 4, 5}) {
      const ReplayReport r = replay(run, 4, from, 8 - from);
      EXPECT_FALSE(r.difference) << run << " from " << from;
      EXPECT_EQ(r.compared, 8 - from);
    }
  }
}

TEST_F(Corruption, AReplayRefusesWhatCannotBeCompared) {
  run_with_flip(recipe("run"), {}, 2, {});
  const auto refused = [&](int ranks, int64_t from, int64_t steps, const std::string& run = "run") {
    try {
      replay(run, ranks, from, steps);
    } catch (const Error& e) {
      return std::string(e.what()) + " " + e.hint();
    }
    return std::string("was not refused");
  };
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refused(3, 4, 2), "layout: 2 ranks, here are 3");
  expect(refused(2, 3, 2), "has no complete checkpoint of step 3");
  expect(refused(2, 4, 5), "ends at step 8");
  expect(refused(2, 9, 5), "has no digests of steps 10 to 14");
  const std::string lines = read_text(path("run/digests.jsonl")), config = read_text(path("run/config.toml"));
  const auto with = [&](const std::string& text, const std::string& a, const std::string& b) {
    std::string changed = text;
    const size_t at = changed.find(a);
    EXPECT_NE(at, std::string::npos) << a;
    return at == std::string::npos ? changed : changed.replace(at, a.size(), b);
  };
  write_text(path("run/digests.jsonl"), with(lines, R"("kernels":")", R"("kernels":"x)"));
  expect(refused(2, 4, 2), "kernels: set x");
  write_text(path("run/digests.jsonl"), lines);
  write_text(path("run/config.toml"), with(config, "lr = 0.0005", "lr = 0.0006"));
  expect(refused(2, 4, 2), "recipe: phases.1.lr was 0.0005, is 0.0006");
  write_text(path("run/config.toml"), with(config, "agree_every = 2", "agree_every = 3"));
  EXPECT_EQ(refused(2, 4, 2), "was not refused") << "what cannot change a bit may differ";
  fs::remove(path("run/digests.jsonl"));
  expect(refused(2, 4, 2), "has no digests");
}

TEST_F(Corruption, TheCommandSaysWhatItFound) {
  run_with_flip(recipe("one"), {}, 1, {});
  const auto command = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{INGOT_BINARY, "replay", path("one"), "--kernels=any"};
    words.insert(words.end(), more.begin(), more.end());
    return run_process(words);
  };
  const ProcessResult equal = command({"--from", "4", "--steps", "4"});
  EXPECT_EQ(equal.exit_code, 0) << equal.output;
  EXPECT_NE(equal.output.find("all 4 steps equal"), std::string::npos) << equal.output;
  std::string lines = read_text(path("one/digests.jsonl"));
  const size_t at = lines.find("\"step\":6,\"gradients\":[\"") + 23;
  lines[at] = lines[at] == '0' ? '1' : '0';
  write_text(path("one/digests.jsonl"), lines);
  const ProcessResult differs = command({"--from", "4", "--steps", "4"});
  EXPECT_EQ(differs.exit_code, 1) << differs.output;
  EXPECT_NE(differs.output.find("step 6 differs first, in the gradients of rank 0"), std::string::npos)
      << differs.output;
  const std::string file = path("report.json");
  EXPECT_EQ(command({"--from", "4", "--steps", "4", "--json=" + file}).exit_code, 1);
  const auto j = nlohmann::json::parse(read_text(file));
  EXPECT_EQ(j["first_difference"]["step"], 6);
  EXPECT_EQ(j["first_difference"]["ranks"], nlohmann::json::array({0}));
  EXPECT_EQ(j["equal_steps"], 1);
  const ProcessResult own = command({"--from", "4", "--steps", "4", "--folder", path("one")});
  EXPECT_EQ(own.exit_code, 1);
  EXPECT_NE(own.output.find("holds a run"), std::string::npos) << own.output;
}

}  // namespace
}  // namespace ingot::test::corruption_ranks_test
