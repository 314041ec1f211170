// A phase of kind "rl" from its recipe to its records: the reward rises, what was recorded is what training
// computes, bit for bit, and what cannot work is refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "post/rl/rl_source.h"
#include "post/rl/rollout_counts.h"
#include "report/metrics.h"
#include "support/killer.h"
#include "support/other_threads.h"
#include "support/rl_run.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::rl_run_invariance_test {

struct RlRun : ::testing::Test {
  static void SetUpTestSuite() {
    register_rl_environments();
    folder_ = std::make_unique<TempDir>();
    write_rl_rows(folder_->path());
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string path(const std::string& name) { return *folder_ / name; }

  static Recipe recipe(const std::string& run, int steps, const std::string& more = "") {
    write_text(path(run) + ".toml", rl_recipe(folder_->path(), run, steps, more));
    return load_recipe(path(run) + ".toml", {});
  }
  /// Runs to the end; the rows of the phase "rl".
  static std::vector<MetricRow> run(const Recipe& r) {
    Trainer trainer(real_file_system(), r, StartMode::resume_or_start);
    EXPECT_TRUE(trainer.run().finished);
    std::vector<MetricRow> rows = read_metrics(real_file_system(), r.run.folder + "/metrics.jsonl");
    std::erase_if(rows, [](const MetricRow& row) { return row.scalar("rl/kl") == nullptr; });
    return rows;
  }
  static std::string refusal(const Recipe& r) {
    try {
      run(r);
    } catch (const Error& e) {
      return e.what() + ("; " + e.hint());
    }
    return "it ran";
  }
  static double mean(const std::vector<MetricRow>& rows, const std::string& name, size_t begin, size_t end) {
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += *rows[i].scalar(name);
    return sum / static_cast<double>(end - begin);
  }

  static inline std::unique_ptr<TempDir> folder_;
};

TEST_F(RlRun, LearnsOnPolicyExactly) {
  const std::vector<MetricRow> rows = run(recipe("learns", 24));
  ASSERT_EQ(rows.size(), 24u);
  EXPECT_LT(mean(rows, "rl/reward", 0, 3), 0.6);
  EXPECT_GT(mean(rows, "rl/reward", 21, 24), mean(rows, "rl/reward", 0, 3) + 0.25);
  double compared = 0;
  for (const MetricRow& row : rows) {
    compared += *row.scalar("rl/compared");
    EXPECT_EQ(*row.scalar("rl/unequal"), 0);
    EXPECT_EQ(*row.scalar("rl/ratio"), 1);
    EXPECT_EQ(*row.scalar("rl/kl"), 0);
    EXPECT_EQ(*row.scalar("rl/masked"), 0);
    EXPECT_GT(*row.scalar("rl/entropy"), 0);
    EXPECT_TRUE(row.scalar("rl/difficulty/say_test") != nullptr &&
                row.scalar("rl/reward/say_test") != nullptr);
  }
  EXPECT_GT(compared, 24 * 48);
  const std::vector<int64_t> steps = rollout_steps(real_file_system(), path("learns/rollouts.jsonl"));
  EXPECT_EQ(steps.size(), 24u);
  const std::vector<RolloutLine> last =
      read_rollouts(real_file_system(), path("learns/rollouts.jsonl"), steps.back());
  ASSERT_EQ(last.size(), 8u);  // one group
  double sum = 0;
  for (const RolloutLine& l : last) {
    EXPECT_EQ(l.environment, "say_test");
    EXPECT_FALSE(l.tokens.empty());
    sum += l.advantage;
  }
  EXPECT_NEAR(sum, 0, 1e-9);
}

// Every choice trains, and where weights have moved within a batch ratios and masks show it.
TEST_F(RlRun, SeveralUpdatesOnABatch) {
  for (const std::string kind : {"clip", "cispo", "dppo", "reinforce"}) {
    Recipe r = recipe("updates_" + kind, 4,
                      "updates_per_batch = 2\nadvantage = \"rloo\"\n[phases.rl.loss]\nkind = \"" + kind +
                          "\"\naggregation = \"token\"\nclip_low = 0.01\nclip_high = 0.01\ndelta = 0.01\n");
    r.phases[1].lr = 1e-2;
    const std::vector<MetricRow> rows = run(r);
    ASSERT_EQ(rows.size(), 4u) << kind;
    for (const size_t first : {0, 2}) {
      EXPECT_EQ(*rows[first].scalar("rl/ratio"), 1) << kind;
      EXPECT_EQ(*rows[first].scalar("rl/unequal"), 0) << kind;
      EXPECT_EQ(rows[first + 1].scalar("rl/unequal"), nullptr) << kind;
      EXPECT_GT(*rows[first + 1].scalar("rl/kl"), 0) << kind;
      EXPECT_LT(*rows[first + 1].scalar("rl/r"), 1) << kind;
      EXPECT_EQ(*rows[first].scalar("rl/masked"), 0) << kind;
      if (kind == "clip" || kind == "dppo") {
        EXPECT_GT(*rows[first + 1].scalar("rl/masked"), 0) << kind;
      }
    }
  }
}

/// What a source needs, without a run around it.
struct SourceParts {
  explicit SourceParts(const Recipe& given)
      : data(prepare_data(real_file_system(), given)),
        engine(with_vocabulary(given, data)),
        sampler(engine.recipe(), data) {
    engine.load_start(real_file_system(), data.tokenizer.content_hash());
    sampler.advance();
    engine.enter(1, 0);
    source = std::make_unique<RlSource>(SourceContext{real_file_system(), engine, data, sampler});
  }
  StepStats pass(const data::Batch& batch) { return engine.forward_backward(batch, engine.options(1, 1)); }
  PreparedData data;
  TrainEngine engine;
  PhaseSampler sampler;
  std::unique_ptr<RlSource> source;
};

// The counter of unequal log-probabilities is no ornament: one weight, moved by one unit in the last place
// after replies were drawn, is seen.
TEST_F(RlRun, AStaleWeightIsSeen) {
  SourceParts parts(recipe("stale", 2, "need_signal = false\n"));
  const data::Batch batch = parts.source->next(40);
  const StepStats fresh = parts.pass(batch);
  EXPECT_EQ(fresh.compared, batch.valid_targets);
  EXPECT_EQ(fresh.unequal, 0);
  WeightSet& weights = parts.engine.model().weights();
  auto* w = weights.master(weights.table().find("layers.0.attention_norm.weight")).as<float>();
  w[0] = std::nextafter(w[0], 2.0F);
  weights.changed();
  EXPECT_GT(parts.pass(batch).unequal, 0);
}

/// The recipe with a model of experts, several updates a batch.
Recipe recipe_with_experts(const std::string& folder) {
  std::string text = rl_recipe(folder, "experts", 2, "need_signal = false\nupdates_per_batch = 2\n");
  const size_t begin = text.find("preset"), end = text.find("context = 64");
  text.replace(begin, end - begin,
               "preset = \"zaya-tiny\"\nwidth = 16\nlayers = 2\nheads = 4\nkv_heads = 2\nhead_width = 8\n");
  const size_t after = text.find("[tokenizer]");
  text.insert(after, "[model.moe]\nexperts = 4\nhidden = 16\nrouter_width = 8\n");
  write_text(folder + "/experts.toml", text);
  return load_recipe(folder + "/experts.toml", {});
}

// Where weights have moved since replies were drawn, their experts stay those of the drawing.
TEST_F(RlRun, RoutesAreReplayed) {
  SourceParts parts(recipe_with_experts(folder_->path()));
  const data::Batch first = parts.source->next(40);
  EXPECT_TRUE(first.routes.empty());
  EXPECT_EQ(parts.pass(first).unequal, 0);
  data::Batch second = parts.source->next(41);
  ASSERT_FALSE(second.routes.empty());
  const StepStats replayed = parts.pass(second);
  EXPECT_EQ(replayed.unequal, 0);  // the same experts in the same order: the same bits
  WeightSet& weights = parts.engine.model().weights();
  const Random random(9, RandomPurpose::test);
  for (int i = 0; i < weights.size(); ++i) {
    auto* w = weights.master(i).as<float>();
    for (int64_t e = 0; e < weights.master(i).numel(); ++e)
      w[e] += 0.2F * (random.uniform(static_cast<uint64_t>(i * 100003 + e)) - 0.5F);
  }
  weights.changed();
  const StepStats moved = parts.pass(second);
  EXPECT_GT(moved.unequal, 0);
  EXPECT_EQ(moved.expert_counts, replayed.expert_counts);
  second.routes.clear();
  EXPECT_NE(parts.pass(second).expert_counts, replayed.expert_counts);
}

/// Other settings under which replies are drawn.
const char* const kDrawn[] = {"temperature = 0.7\ntop_p = 0.9\n", "temperature = 1.6\n", "top_k = 3\n",
                              "temperature = 1.3\nmin_p = 0.05\ntop_k = 20\n"};

// At any temperature, and whatever is left out, what is recorded is what training computes.
TEST_F(RlRun, RestrictedDrawsAreTrainedExactly) {
  int number = 0;
  for (const std::string drawn : kDrawn) {
    SCOPED_TRACE(drawn);
    Recipe r =
        recipe("drawn" + std::to_string(number++), 4, "need_signal = false\nupdates_per_batch = 2\n" + drawn);
    r.phases[1].lr = 1e-2;
    const std::vector<MetricRow> rows = run(r);
    ASSERT_EQ(rows.size(), 4u);
    for (const size_t first : {0, 2}) {
      EXPECT_GE(*rows[first].scalar("rl/compared"), 48);
      EXPECT_EQ(*rows[first].scalar("rl/unequal"), 0);
      EXPECT_EQ(*rows[first].scalar("rl/ratio"), 1);
      EXPECT_EQ(*rows[first].scalar("rl/kl"), 0);
      EXPECT_GT(*rows[first + 1].scalar("rl/kl"), 0);
    }
  }
}

// Both halves are needed: the temperature in the head, and the ids that were kept.
TEST_F(RlRun, WithoutTheKeptIdsLogprobsDiffer) {
  SourceParts parts(recipe("kept", 2, "need_signal = false\ntemperature = 0.7\ntop_p = 0.8\n"));
  data::Batch batch = parts.source->next(40);
  ASSERT_EQ(batch.allowed.size(), 2 * batch.targets.size());
  const StepStats fresh = parts.pass(batch);
  EXPECT_EQ(fresh.compared, batch.valid_targets);
  EXPECT_EQ(fresh.unequal, 0);
  int64_t narrow = 0;
  for (size_t t = 0; t < batch.targets.size(); ++t) {
    const std::span<const int32_t> ids(batch.allowed_ids.data() + batch.allowed[2 * t],
                                       batch.allowed_ids.data() + batch.allowed[2 * t + 1]);
    EXPECT_EQ(ids.empty(), batch.targets[t] < 0) << t;
    if (ids.empty()) continue;
    EXPECT_TRUE(std::binary_search(ids.begin(), ids.end(), batch.targets[t])) << t;
    narrow += ids.size() < 261 ? 1 : 0;
  }
  EXPECT_EQ(narrow, batch.valid_targets);
  StepOptions plain = parts.engine.options(1, 1);
  Objective unscaled = *plain.objective;
  unscaled.logit_scale = 1;
  plain.objective = std::make_shared<const Objective>(unscaled);
  EXPECT_GT(parts.engine.forward_backward(batch, plain).unequal, 0);
  batch.allowed.clear(), batch.allowed_ids.clear();
  EXPECT_GT(parts.pass(batch).unequal, 0);
}

// Ids that a budget forced were drawn from nothing, and are not in the loss.
TEST_F(RlRun, ForcedTokensHaveNoKeptIds) {
  const TempDir folder;
  write_rl_rows(folder.path(), true);
  const std::string file = folder / "budget.toml";
  write_text(file, rl_recipe(folder.path(), "budget", 2,
                             "need_signal = false\nthinking_tokens = 2\ntop_p = 0.9\ntemperature = 0.9\n"));
  for (const MetricRow& row : run(load_recipe(file, {"--phases.1.rl.max_tokens=16"}))) {
    EXPECT_GT(*row.scalar("rl/forced"), 0);
    EXPECT_EQ(*row.scalar("rl/unequal"), 0);
  }
}

// The reference is the model that the phase began with: no divergence at first, and a penalty keeps it small.
TEST_F(RlRun, APenaltyKeepsThePolicyNearItsReference) {
  std::map<std::string, double> away;
  for (const std::string coefficient : {"1e-9", "2"}) {
    Recipe r = recipe("near" + coefficient, 10,
                      "temperature = 0.9\ntop_p = 0.95\nkl_reference = " + coefficient + "\n");
    r.phases[1].lr = 6e-3;
    const std::vector<MetricRow> rows = run(r);
    ASSERT_EQ(rows.size(), 10u);
    EXPECT_EQ(*rows[0].scalar("rl/kl_reference"), 0);
    for (const MetricRow& row : rows) EXPECT_EQ(*row.scalar("rl/unequal"), 0);
    away[coefficient] = mean(rows, "rl/kl_reference", 6, 10);
    EXPECT_GT(away[coefficient], 0);
  }
  EXPECT_LT(away["2"], 0.5 * away["1e-9"]);
}

TEST_F(RlRun, AReferenceThatIsGoneIsNamed) {
  SourceParts parts(recipe("gone", 2, "kl_reference = 0.1\n"));
  const SourceContext context{real_file_system(), parts.engine, parts.data, parts.sampler};
  try {
    const ReferencePolicy reference(context, 40);
    FAIL() << "there is no checkpoint";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the reference of phase 'rl' is the model of step 40"),
              std::string::npos)
        << e.what();
  }
}

// Rollouts are a function of (weights, recipe, step): not of threads or of the engine's memory.
TEST_F(RlRun, RepliesAreAFunctionOfWeightsAndStep) {
  SourceParts one(recipe("function", 2, "need_signal = false\n")),
      other(recipe("function", 2, "need_signal = false\ncache_mib = 1\n"));
  const data::Batch a = one.source->next(40);
  const OtherThreads others;
  const data::Batch b = other.source->next(40);
  EXPECT_TRUE(a == b);
  EXPECT_FALSE(a == other.source->next(41));
}

TEST_F(RlRun, ForcedTokensAreNeverInTheLoss) {
  const TempDir folder;
  write_rl_rows(folder.path(), true);
  const std::string file = folder / "budget.toml";
  write_text(file, rl_recipe(folder.path(), "budget", 2, "need_signal = false\nthinking_tokens = 2\n"));
  const Recipe r = load_recipe(file, {"--phases.1.rl.max_tokens=16"});
  for (const MetricRow& row : run(r)) {
    const double tokens = *row.scalar("rl/sampled_tokens"), forced = *row.scalar("rl/forced") * tokens;
    EXPECT_GT(forced, 10);
    EXPECT_NEAR(*row.scalar("rl/compared"), tokens - forced, 1e-6);
    EXPECT_EQ(*row.scalar("rl/unequal"), 0);
  }
  int marks = 0;
  for (const RolloutLine& l : read_rollouts(real_file_system(), folder / "budget/rollouts.jsonl", 42))
    for (const int64_t t : l.forced) marks += l.tokens[static_cast<size_t>(t)] == "</think>" ? 1 : 0;
  EXPECT_GT(marks, 0);
}

// A fixed set of problems, of which the filter keeps those that are solved now and then, after calibration.
TEST_F(RlRun, AFilteredPoolIsAskedOverAndOver) {
  Recipe r = recipe("pool", 2,
                    "need_signal = false\n[phases.rl.curriculum]\nmoves = false\ncalibrate = 2\n"
                    "[phases.rl.filter]\npool = 5\nsamples = 6\nleast = 0.1\nmost = 0.9\n");
  r.phases[1].rl->record_groups = 6;  // all of a step
  const std::vector<MetricRow> rows = run(r);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(*rows[1].scalar("rl/unequal"), 0);
  std::set<std::string> problems;
  for (const int64_t step : {41, 42})
    for (const RolloutLine& l : read_rollouts(real_file_system(), path("pool/rollouts.jsonl"), step))
      problems.insert(l.problem);
  EXPECT_GE(problems.size(), 1u);
  EXPECT_LE(problems.size(), 5u);  // of 12 prompts
}

// One verdict that fails among many: its reply is left out of its group, and counted.
TEST_F(RlRun, AReplyWithoutVerdictIsLeftOut) {
  write_text(path("once") + ".toml", rl_recipe(folder_->path(), "once", 2, "need_signal = false\n"));
  Recipe r = load_recipe(path("once") + ".toml",
                         {"--phases.1.rl.environments=[{name = \"once_test\"}]", "--phases.1.rl.samples=20"});
  r.phases[1].rl->record_groups = 6;
  const std::vector<MetricRow> rows = run(r);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(*rows[0].scalar("rl/failed_verdicts"), 1);
  EXPECT_EQ(*rows[1].scalar("rl/failed_verdicts"), 0);
  int64_t trained = 0, left_out = 0;
  for (const RolloutLine& l : read_rollouts(real_file_system(), path("once/rollouts.jsonl"), 41)) {
    const bool failed = l.note.find("no verdict today") != std::string::npos;
    left_out += failed ? 1 : 0;
    if (failed) {
      EXPECT_EQ(l.advantage, 0);
    } else {
      trained += static_cast<int64_t>(l.tokens.size());
    }
  }
  EXPECT_EQ(left_out, 1);
  EXPECT_EQ(*rows[0].scalar("rl/compared"), static_cast<double>(trained));
}

/// The real file system, on which rollouts.jsonl finds no space after some bytes.
class FullDisk final : public KillFs {
 public:
  explicit FullDisk(size_t bytes) : KillFs(killer_), left_(bytes) {}
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    auto file = KillFs::open_append(path);
    if (path.ends_with(kRolloutsFile)) file = std::make_unique<File>(*this, path, std::move(file));
    return file;
  }

 private:
  struct File final : WritableFile {
    File(FullDisk& disk, std::string path, std::unique_ptr<WritableFile> file)
        : disk_(disk), path_(std::move(path)), file_(std::move(file)) {}
    void append(const void* data, size_t size) override {
      const size_t fits = std::min(size, disk_.left_);
      file_->append(data, fits);
      disk_.left_ -= fits;
      if (fits < size) fail("'{}': appending failed: No space left on device", path_);
    }
    void sync() override { file_->sync(); }
    void close() override { file_->close(); }
    FullDisk& disk_;
    std::string path_;
    std::unique_ptr<WritableFile> file_;
  };
  Killer killer_{KillPlan()};
  size_t left_;
};

// A run that has no space for its replies stops with the file's name; with space it ends as another run does.
TEST_F(RlRun, NoSpaceForRolloutsLosesNothing) {
  run(recipe("space", 10));
  const Recipe full = recipe("full", 10);
  FullDisk disk(static_cast<size_t>(std::filesystem::file_size(path("space/rollouts.jsonl")) * 2 / 3));
  try {
    Trainer(disk, full, StartMode::resume_or_start).run();
    FAIL() << "there was space";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("full/rollouts.jsonl': appending failed: No space"),
              std::string::npos)
        << e.what();
  }
  run(full);
  EXPECT_EQ(difference(path("space"), path("full")), "");
  for (const char* file : {kRolloutsFile, kRolloutCountsFile})
    EXPECT_EQ(read_text(path("space/") + file), read_text(path("full/") + file)) << file;
}

/// The recipe with rows of text in its second phase.
Recipe with_text(const std::string& path, int steps, const std::vector<std::string>& more = {}) {
  const std::string folder = path.substr(0, path.rfind('/')), name = path.substr(folder.size() + 1);
  write_text(folder + "/text.txt", tiny_text(200));
  std::string text = rl_recipe(folder, name, steps);
  const size_t phases = text.find("[[phases]]");
  text.insert(phases, fmt::format("[[data.sources]]\nname = \"text\"\npath = \"{}/text.txt\"\ndocuments = "
                                  "\"blank_line\"\nvalidation_fraction = 0\nweight = 0\n",
                                  folder));
  write_text(path + ".toml", text);
  std::vector<std::string> options = {"--phases.1.weights=[{source = \"text\"}]",
                                      "--phases.1.rl.replay.rows=2",
                                      "--data.folder=" + folder + "/with_text"};
  options.insert(options.end(), more.begin(), more.end());
  return load_recipe(path + ".toml", options);
}

// Text is learned beside replies, is not compared, and costs the policy's exactness nothing.
TEST_F(RlRun, TextIsReplayed) {
  const Recipe full = with_text(path("text"), 12, {"--phases.1.rl.replay.weight=1"});
  const std::vector<MetricRow> rows = run(full);
  ASSERT_EQ(rows.size(), 12u);
  for (const MetricRow& row : rows) {
    EXPECT_EQ(*row.scalar("rl/unequal"), 0);
    EXPECT_GT(*row.scalar("rl/compared"), 0);
    EXPECT_EQ(*row.scalar("rl/ratio"), 1);
    EXPECT_EQ(*row.scalar("rl/kl"), 0);
  }
  EXPECT_LT(mean(rows, "rl/text_loss", 9, 12), mean(rows, "rl/text_loss", 0, 3) - 0.3);
  // The replies of the first step are those of a run without text; its targets are not among the compared.
  Recipe bare = with_text(path("bare"), 1, {"--phases.1.weights=[]", "--phases.1.rl.replay.rows=0"});
  const std::vector<MetricRow> without = run(bare);
  EXPECT_EQ(*rows[0].scalar("rl/compared"), *without[0].scalar("rl/compared"));
  EXPECT_EQ(without[0].scalar("rl/text_loss"), nullptr);
  // Later updates on a batch see the same text, and a penalty has no reference for it.
  EXPECT_EQ(run(with_text(path("updates"), 4,
                          {"--phases.1.rl.updates_per_batch=2", "--phases.1.rl.kl_reference=0.05"}))
                .size(),
            4u);
}

TEST_F(RlRun, ReplayIsRefusedWhereItCannotBe) {
  const auto refused = [](const std::vector<std::string>& options, const std::string& expected) {
    std::string text = "it was read";
    try {
      with_text(path("no_text"), 2, options);
    } catch (const Error& e) {
      text = e.what() + ("; " + e.hint());
    }
    EXPECT_NE(text.find(expected), std::string::npos) << text;
  };
  refused({"--phases.1.rl.replay.rows=0"}, "how many rows of a step show their text?");
  refused({"--phases.1.weights=[]"}, "needs the sources of the text");
  refused({"--phases.1.weights=[{source = \"rows\"}]"}, "'rows' has rows of conversations");
  refused({"--phases.1.rl.replay.rows=3", "--parallel.data=2"}, "multiple of the 2 data ranks");
  refused({"--phases.1.rl.temperature=0.7"}, "text is learned at temperature 1");
  refused({"--phases.1.rl.replay.weight=0"}, "replay.weight");
}

TEST_F(RlRun, WhatCannotWorkIsRefused) {
  const auto refused = [](const std::string& name, std::vector<std::string> options,
                          const std::string& expected) {
    write_text(path(name) + ".toml", rl_recipe(folder_->path(), name, 2));
    std::string text;
    try {
      text = refusal(load_recipe(path(name) + ".toml", options));
    } catch (const Error& e) {
      text = e.what() + ("; " + e.hint());
    }
    EXPECT_NE(text.find(expected), std::string::npos) << name << ": " << text;
  };
  const auto environment = [](const std::string& name) {
    return std::vector<std::string>{"--phases.1.rl.environments=[{name = \"" + name + "\"}]"};
  };
  refused("throws", environment("throws_test"), "no verdict today");
  refused("never", environment("never_test"), "never_test at difficulty 0: pass rate 0.000");
  refused("nan", environment("nan_test"), "gave the reward nan");
  refused("unknown", environment("sya_test"), "did you mean 'say_test'?");
  EXPECT_FALSE(std::filesystem::exists(path("unknown"))) << "the phase before it has run";
  refused("table", {"--phases.1.rl=none"}, "needs its table [phases.rl]");
  refused("none", {"--phases.1.rl.environments=[]"}, "at least one is needed");
  refused("range", {"--phases.1.rl.environments=[{name = \"say_test\", most = 9}]"},
          "'say_test' has difficulties 0 to 3, found 9");
  refused("single", {"--phases.1.rl.samples=1"}, "compares the replies");
  refused("long", {"--phases.1.rl.max_tokens=50"}, "positions");
  refused("filter", {"--phases.1.rl.filter.pool=4"}, "moves = false");
  refused("empty",
          {"--phases.1.rl.curriculum.moves=false", "--phases.1.rl.filter.pool=2",
           "--phases.1.rl.filter.least=1", "--phases.1.rl.filter.most=1"},
          "none of 2 problems");
  refused("odd", {"--phases.1.rl.updates_per_batch=3"}, "multiple of rl.updates_per_batch");
  refused("greedy", {"--phases.1.rl.temperature=0"}, "temperature");
  refused("nothing", {"--phases.1.rl.top_p=0"}, "top_p");
  refused("negative", {"--phases.1.rl.top_k=-1"}, "top_k");
  refused("share", {"--phases.1.rl.min_p=1.5"}, "min_p");
  refused("regularised", {"--phases.1.rl.top_p=0.9", "--phases.1.z_coefficient=1e-4"}, "top_p");
  refused("whole", {"--parallel.tensor=2"}, "whole model");
}

}  // namespace ingot::test::rl_run_invariance_test
