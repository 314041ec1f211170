// Whole runs on several ranks: the same losses as one rank's, the same bits when repeated, and a checkpoint
// that any number of ranks resumes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "comm/threads.h"
#include "report/metrics.h"
#include "report/run_record.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::trainer_ranks_test {

/// Of a loss in fp32 on another layout, relative: sums in other orders, over 24 steps (found: 1.2e-8).
constexpr double kRounding = 1e-6;

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
      {"zero2", 2, {"--parallel.shard=optimizer"}},
      {"zero4", 4, {"--parallel.shard=optimizer"}},
      {"dp4_ep2", 4, {"--parallel.expert=2"}},
      {"zero4_ep2", 4, {"--parallel.expert=2", "--parallel.shard=optimizer"}},
      {"full2", 2, {"--parallel.shard=full"}},
      {"full4_ep2", 4, {"--parallel.expert=2", "--parallel.shard=full", "--parallel.shard_ranks=2"}},
  };
  return all;
}

std::vector<std::string> pipeline(const std::string& schedule, std::vector<std::string> more = {},
                                  int stages = 2) {
  more.insert(more.end(), {fmt::format("--parallel.pipeline={}", stages), "--parallel.schedule=" + schedule});
  return more;
}

/// Stops a run as Ctrl-C would, before step `step` (counted from where it started).
class Stopper final : public RunObserver {
 public:
  explicit Stopper(int step) : left_(step) {}
  void enters(StepPart phase) override {
    if (phase == StepPart::data && left_-- == 0) Trainer::interrupt();
  }
  void tensor(const std::string&, const Tensor&) override {}

 private:
  int left_;
};

class TrainerRanks : public ::testing::Test {
 protected:
  void SetUp() override { write_text(folder_ / "text.txt", tiny_text(4000)); }

  /// Runs the tiny recipe on these ranks in folder `run`; `steps` >= 0: stops after that many.
  void run(const RunLayout& layout, const std::string& run, int steps = -1,
           std::vector<std::string> more = {}) {
    const std::string path = folder_ / (run + ".toml");
    write_text(path, tiny_recipe(folder_ / run, folder_ / "data", folder_ / "text.txt"));
    std::vector<std::string> options = layout.options;
    options.insert(options.end(), {"--phases.1.batch=8", "--phases.0.batch=8", "--phases.0.micro_batch=1",
                                   "--phases.1.micro_batch=2"});
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
    for (const MetricRow& row : read_metrics(real_file_system(), folder_ / (run + "/" + run_files::kMetrics)))
      values.push_back(*row.scalar("loss"));
    return values;
  }
  double worst_difference(const std::string& left, const std::string& right) {
    const std::vector<double> a = losses_of(left), b = losses_of(right);
    EXPECT_EQ(a.size(), b.size());
    EXPECT_EQ(a.size(), 24u);
    double worst = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      EXPECT_GT(a[i], 1) << left << " step " << i;
      worst = std::max(worst, std::abs(a[i] - b[i]) / a[i]);
    }
    return worst;
  }

  /// The statistics of the first step, which has the same weights, and of every validation.
  void expect_same_statistics(const std::string& left, const std::string& right) {
    const auto rows = [&](const std::string& run) {
      return read_metrics(real_file_system(), folder_ / (run + "/" + run_files::kMetrics));
    };
    const std::vector<MetricRow> a = rows(left), b = rows(right);
    ASSERT_EQ(a.size(), b.size());
    const auto near = [&](const MetricRow& l, const MetricRow& r, const std::string& name) {
      const double* found = r.scalar(name);
      ASSERT_NE(found, nullptr) << right << " " << name;
      EXPECT_LE(std::abs(*found - *l.scalar(name)), 1e-4 * std::abs(*l.scalar(name))) << right << " " << name;
    };
    int validations = 0;
    for (size_t i = 0; i < a.size(); ++i)
      for (const auto& [name, value] : a[i].scalars)
        if (name.starts_with("val/")) near(a[i], b[i], name), ++validations;
    EXPECT_EQ(validations, 15) << "five times loss, bits per byte and tokens";
    for (const auto& [name, value] : a[0].scalars)
      if (name == "grad_norm" || name == "log_z" || name == "attention_logit_max" || name == "dead_experts" ||
          name.starts_with("loss") || name.starts_with("residual/") || name.starts_with("grad_norm/") ||
          name.starts_with("batch/") || name.ends_with("/entropy"))
        near(a[0], b[0], name);
    EXPECT_FALSE(a[0].lists.empty());
    for (const auto& [name, loads] : a[0].lists) {
      const std::vector<double>* found = b[0].list(name);
      ASSERT_NE(found, nullptr) << right << " " << name;
      EXPECT_EQ(*found, loads) << right << " " << name;
    }
  }

  /// Each layout follows the first one, repeats its first steps bit for bit, and resumes the next one's
  /// checkpoint, which it first loads and saves unchanged.
  void expect_interchangeable(const std::vector<RunLayout>& layouts, const std::vector<std::string>& more) {
    for (const RunLayout& l : layouts) {
      run(l, l.name, -1, more);
      EXPECT_LE(worst_difference(layouts[0].name, l.name), kRounding) << l.name;
      expect_same_statistics(layouts[0].name, l.name);
    }
    for (size_t i = 0; i < layouts.size(); ++i) {
      const RunLayout &from = layouts[(i + 1) % layouts.size()], &to = layouts[i];
      const std::string name = fmt::format("{}_to_{}", from.name, to.name);
      run(from, name, 9, more);
      const std::vector<double> whole = losses_of(from.name), again = losses_of(name);
      EXPECT_EQ(again, std::vector<double>(whole.begin(), whole.begin() + 9)) << from.name << " repeats";
      const auto state = checkpoint_content(folder_ / name);
      run(to, name, 0, more);
      EXPECT_EQ(checkpoint_content(folder_ / name), state) << name;
      run(to, name, -1, more);
      EXPECT_LE(worst_difference(layouts[0].name, name), kRounding) << name;
    }
  }

  TempDir folder_;
  const Quiet quiet_;
};

TEST_F(TrainerRanks, EveryLayoutFollowsOneRank) {
  for (const RunLayout& l : layouts()) {
    run(l, l.name);
    EXPECT_LE(worst_difference("one", l.name), kRounding) << l.name;
  }
}

/// With two key heads one rank has the current values of CCA, the other the delayed ones, so Muon's blocks
/// are not the shards.
TEST_F(TrainerRanks, TensorAndExpertTensorRanks) {
  const std::string tensor = "--parallel.tensor=2", sequence = "--parallel.sequence=true",
                    shards = "--parallel.shard=optimizer", widths = "--parallel.expert_tensor=2";
  expect_interchangeable(
      {{"one", 1, {}},
       {"tp2", 2, {tensor}},
       {"dp2_tp2", 4, {tensor}},
       {"zero2_tp2", 4, {tensor, shards}},
       {"tp2_sequence", 2, {tensor, sequence}},
       {"dp2_tp2_sequence_ep4", 4, {tensor, sequence, "--parallel.expert=4"}},
       {"dp2_tp2_sequence_ep2_etp2", 4, {tensor, sequence, "--parallel.expert=2", widths}},
       {"zero2_tp2_sequence_etp2", 4, {tensor, sequence, widths, shards}},
       {"cp2_tp2_sequence", 4, {tensor, sequence, "--parallel.context=2", "--parallel.context_form=gather"}},
       {"dp4_ep2_etp2", 4, {"--parallel.expert=2", widths}}},
      {});
}

double mean_dropped(const std::string& run) {
  double sum = 0;
  const std::vector<MetricRow> rows = read_metrics(real_file_system(), run + "/" + run_files::kMetrics);
  for (const MetricRow& row : rows)
    if (const double* share = row.scalar("router/dropped")) sum += *share;
  return sum / static_cast<double>(rows.size());
}

/// With enough capacity no form of dispatch changes the loss, and at least two have the same bits; bf16 rows
/// are rounded once per hop, and dropped choices are counted.
TEST_F(TrainerRanks, ExpertsAreReachedInEveryForm) {
  const std::string expert = "--parallel.expert=4", nodes = "--parallel.node_ranks=2",
                    hierarchical = "--parallel.dispatch=hierarchical";
  run({"one", 1, {}}, "one");
  const auto follow = [&](const char* name, std::vector<std::string> options, double bound) {
    options.push_back(expert);
    run({name, 4, options}, name);
    EXPECT_LE(worst_difference("one", name), bound) << name;
  };
  follow("all_to_all", {}, kRounding);
  follow("all_gather", {"--parallel.dispatch=all_gather"}, kRounding);
  follow("hierarchical", {hierarchical, nodes}, kRounding);
  follow("capacity", {"--parallel.dispatch_capacity=4"}, kRounding);
  EXPECT_EQ(losses_of("all_gather"), losses_of("all_to_all"));
  EXPECT_EQ(losses_of("capacity"), losses_of("all_to_all"));
  EXPECT_EQ(mean_dropped(folder_ / "capacity"), 0);
  follow("bf16", {"--parallel.dispatch_bf16=true"}, 1.0 / 512);
  EXPECT_GT(worst_difference("one", "bf16"), kRounding);
  follow("drop", {hierarchical, nodes, "--parallel.dispatch_capacity=1", "--parallel.dispatch_drop=true"},
         0.05);
  EXPECT_GT(mean_dropped(folder_ / "drop"), 0);
  EXPECT_LT(mean_dropped(folder_ / "drop"), 0.5);
}

TEST_F(TrainerRanks, ContextRanks) {
  const auto context = [](const std::string& form, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--parallel.context=2", "--parallel.context_form=" + form});
    return more;
  };
  expect_interchangeable(
      {{"one", 1, {}},
       {"cp2_heads", 2, context("heads")},
       {"cp2_gather", 2, context("gather")},
       {"cp2_ring_ep2", 2, context("ring", {"--parallel.expert=2"})},
       {"cp4_inner2_ep4",
        4,
        {"--parallel.context=4", "--parallel.context_form=ring", "--parallel.context_inner=2",
         "--parallel.expert=4"}},
       {"zero2_cp2_ep4", 4, context("heads", {"--parallel.expert=4", "--parallel.shard=optimizer"})}},
      {});
}

/// Balance losses large enough to tell loads of other tokens apart. Under the global scope one rank must
/// cut the batch into micro-batches as many ranks together do.
TEST_F(TrainerRanks, BalanceLossesSeeTheSameLoad) {
  const std::string sequence = "--parallel.sequence=true", tensor = "--parallel.tensor=2",
                    context = "--parallel.context=2";
  const std::vector<RunLayout> layouts = {
      {"dp2", 2, {}},
      {"tp2_sequence", 2, {tensor, sequence}},
      {"cp2_ep2", 2, {context, "--parallel.context_form=ring", "--parallel.expert=2"}},
      {"pp2_cp2", 4, pipeline("1f1b", {context})},
      {"pp2_merged", 2, pipeline("merged", {})}};
  std::vector<std::vector<double>> losses;
  for (const std::string scope : {"micro_batch", "last_step", "global"}) {
    std::vector<std::string> model = {"--model.moe.aux_coefficient=0.5", "--model.moe.aux_scope=" + scope};
    run({"one", 1, {}}, scope, -1, model);
    losses.push_back(losses_of(scope));
    for (const RunLayout& l : layouts) {
      if (scope == "global" && &l == &layouts[0]) continue;
      const std::string name = scope + l.name;
      run(l, name, -1, model);
      EXPECT_LE(worst_difference(scope, name), kRounding) << name;
    }
    run({"one", 1, {}}, scope + "_resumed", 10, model);
    run({"one", 1, {}}, scope + "_resumed", -1, model);
    EXPECT_EQ(losses_of(scope + "_resumed"), losses_of(scope));
    if (scope != "global") continue;
    model.push_back("--phases.0.micro_batch=0"), model.push_back("--phases.1.micro_batch=0");
    run({"one", 1, {}}, "whole", -1, model);
    for (const RunLayout& l : {layouts[0], RunLayout{"dp2_ep2", 2, {"--parallel.expert=2"}}}) {
      const std::string name = std::string("whole_") + l.name;
      run(l, name, -1, model);
      EXPECT_LE(worst_difference("whole", name), kRounding) << name;
    }
    EXPECT_GT(std::abs(losses_of("whole").back() - losses_of(scope).back()), 100 * kRounding);
  }
  EXPECT_EQ(losses[0][0], losses[1][0]) << "the loss does not contain the balance loss";
  EXPECT_GT(std::abs(losses[0].back() - losses[1].back()), 100 * kRounding);
  EXPECT_GT(std::abs(losses[0].back() - losses[2].back()), 100 * kRounding);
}

/// QK-clip by the largest logits of each head, where context ranks exchange heads and tensor ranks shard
/// them.
TEST_F(TrainerRanks, ClipTheSameHeads) {
  const std::vector<std::string> model = {"--model.attention=gqa", "--model.qk_norm=false",
                                          "--optimizer.qk_clip=0.02"};
  run({"one", 1, {}}, "one", -1, model);
  for (const RunLayout& l :
       {RunLayout{"heads", 2, {"--parallel.context=2"}},
        {"gather", 2, {"--parallel.context=2", "--parallel.context_form=gather"}},
        {"inner2", 4, {"--parallel.context=4", "--parallel.context_form=ring", "--parallel.context_inner=2"}},
        {"pp2_tp2", 4, {"--parallel.tensor=2", "--parallel.pipeline=2"}}}) {
    run(l, l.name, -1, model);
    EXPECT_LE(worst_difference("one", l.name), kRounding) << l.name;
    const auto clipped = [&](const std::string& run) {
      double heads = 0;
      for (const MetricRow& row :
           read_metrics(real_file_system(), (folder_ / run) + "/" + run_files::kMetrics))
        heads += *row.scalar("qk_clipped_heads");
      return heads;
    };
    EXPECT_GT(clipped("one"), 0);
    EXPECT_EQ(clipped(l.name), clipped("one")) << l.name;
  }
}

/// The weights are one rank's but for rounding, and so are the samples.
TEST_F(TrainerRanks, RanksThatHoldPartsWriteTheSamples) {
  const std::vector<std::string> model = {"--model.layers=4", "--samples.prompts=[\"the \", \"rain\"]"};
  run({"one", 1, {}}, "one", -1, model);
  ASSERT_EQ(samples(folder_ / "one").size(), 8u);
  for (const RunLayout& l : {RunLayout{"tp2", 2, {"--parallel.tensor=2"}},
                             {"tp2_sequence", 2, {"--parallel.tensor=2", "--parallel.sequence=true"}},
                             {"pp2_chunks2", 2, pipeline("interleaved", {"--parallel.chunks=2"})},
                             {"pp2_tp2", 4, pipeline("1f1b", {"--parallel.tensor=2"})},
                             {"pp2_cp2", 4, pipeline("1f1b", {"--parallel.context=2"})}}) {
    run(l, l.name, -1, model);
    EXPECT_EQ(samples(folder_ / l.name), samples(folder_ / "one")) << l.name;
  }
}

TEST_F(TrainerRanks, PipelineRanks) {
  const std::string shards = "--parallel.shard=optimizer", chunks = "--parallel.chunks=2";
  expect_interchangeable({{"one", 1, {}},
                          {"pp2", 2, pipeline("1f1b")},
                          {"pp2_zero_bubble", 2, pipeline("zero_bubble")},
                          {"pp2_chunks2", 2, pipeline("interleaved", {chunks})},
                          {"pp2_chunks2_merged", 2, pipeline("merged", {chunks})},
                          {"pp4", 4, pipeline("1f1b", {}, 4)},
                          {"pp2_layout", 2, pipeline("interleaved", {"--parallel.layout=E|tt|t|tmL"})},
                          {"pp2_zero2_ep2", 4, pipeline("merged", {"--parallel.expert=2", shards})},
                          {"pp2_cp2", 4, pipeline("zero_bubble", {"--parallel.context=2"})},
                          {"dp2_ep2_merged", 2, {"--parallel.schedule=merged", "--parallel.expert=2"}}},
                         {"--model.layers=4", "--model.mtp.depths=1"});
}

TEST_F(TrainerRanks, FullyShardedPipelines) {
  const std::string full = "--parallel.shard=full", chunks = "--parallel.chunks=2",
                    experts = "--parallel.expert=2";
  expect_interchangeable({{"one", 1, {}},
                          {"pp2_full2", 4, pipeline("1f1b", {full})},
                          {"pp2_full2_chunks2", 4, pipeline("interleaved", {full, chunks})},
                          {"pp2_full2_ep2_merged", 4, pipeline("merged", {full, experts})}},
                         {"--model.layers=4", "--model.mtp.depths=1", "--model.tied=true"});
  EXPECT_EQ(samples(folder_ / "one"), samples(folder_ / "pp2_full2"));
}

/// Multi-token prediction modules in stages before the stage of the loss. Validation and samples run through
/// them too.
TEST_F(TrainerRanks, PipelinesThatPredictAheadBeforeTheLoss) {
  const auto layout = [](const std::string& schedule, const std::string& text,
                         std::vector<std::string> more = {}) {
    more.push_back("--parallel.layout=" + text);
    return pipeline(schedule, std::move(more));
  };
  const std::string shards = "--parallel.shard=optimizer", tensor = "--parallel.tensor=2";
  expect_interchangeable({{"one", 1, {}},
                          {"pp2", 2, layout("1f1b", "Ettm|L")},
                          {"pp2_interleaved", 2, layout("interleaved", "Et|t|m|L")},
                          {"pp2_zero2_ep2", 4, layout("merged", "E|tt|m|L", {"--parallel.expert=2", shards})},
                          {"pp2_cp2", 4, layout("zero_bubble", "Ettm|L", {"--parallel.context=2"})}},
                         {"--model.mtp.depths=1"});
  EXPECT_EQ(samples(folder_ / "one"), samples(folder_ / "pp2"));
  const std::vector<std::string> two = {"--model.mtp.depths=2", "--model.attention=gqa"};
  run({"one", 1, {}}, "both", -1, two);
  for (const RunLayout& l : {RunLayout{"together", 2, layout("zero_bubble", "Ettmm|L")},
                             {"apart", 2, layout("interleaved", "Et|t|m|mL")},
                             {"tp2", 4, layout("merged", "Et|t|m|mL", {tensor})}}) {
    run(l, l.name, -1, two);
    EXPECT_LE(worst_difference("both", l.name), kRounding) << l.name;
    expect_same_statistics("both", l.name);
  }
}

TEST_F(TrainerRanks, PipelinesOfTensorRanks) {
  const std::string tensor = "--parallel.tensor=2";
  expect_interchangeable({{"one", 1, {}},
                          {"pp2_tp2", 4, pipeline("1f1b", {tensor})},
                          {"pp2_tp2_sequence_ep2", 4,
                           pipeline("merged", {tensor, "--parallel.sequence=true", "--parallel.expert=2"})}},
                         {"--model.attention=gqa"});
}

/// What is recomputed or offloaded has the same bits, several micro-batches and chunks at a time too.
TEST_F(TrainerRanks, MemoryPoliciesOfPipelinesKeepTheBits) {
  const RunLayout layout{"pp2", 2, pipeline("interleaved", {"--parallel.chunks=2"})};
  const std::string model = "--model.layers=4";
  run(layout, "kept", -1, {model});
  run(layout, "again", -1, {model, "--memory.recompute=[\"experts/\", \"add_norm\"]"});
  run(layout, "moved", -1, {model, "--memory.offload=[\"add_norm.stream\"]"});
  EXPECT_EQ(difference(folder_ / "kept", folder_ / "again"), "");
  EXPECT_EQ(difference(folder_ / "kept", folder_ / "moved"), "");
}

/// Rules by name and clipping by head act where their parameters are.
TEST_F(TrainerRanks, RulesReachTheStageOfTheirParameters) {
  const std::vector<std::string> rules = {
      "--model.attention=gqa", "--model.qk_norm=false", "--optimizer.qk_clip=0.02",
      "--optimizer.rules.0.pattern=layers.1.attention.*", "--optimizer.rules.0.lr_multiplier=0.5"};
  run({"one", 1, {}}, "one", -1, rules);
  run({"pp2", 2, pipeline("1f1b")}, "pp2", -1, rules);
  EXPECT_LE(worst_difference("one", "pp2"), kRounding);
}

TEST_F(TrainerRanks, ARunRepeatsBitForBit) {
  const RunLayout& layout = layouts().back();
  run(layout, "first");
  run(layout, "again");
  EXPECT_EQ(difference(folder_ / "first", folder_ / "again"), "");
}

/// For every form of buckets, shards and matrices. Only the norm is summed in another order, and with clip =
/// 0 nothing depends on it; one micro-batch per step, since full sharding sums each over ranks first.
TEST_F(TrainerRanks, SharesHaveTheBitsOfAWholeOptimizer) {
  const std::vector<std::vector<std::string>> shares = {
      {"--parallel.bucket=2KiB"},
      {"--parallel.shard=optimizer"},
      {"--parallel.shard=optimizer", "--parallel.whole_matrices=true"},
      {"--parallel.shard=full"},
      {"--parallel.shard=full", "--parallel.whole_matrices=true"}};
  for (const std::string options : {"f32 f32 2", "f32 bf16_stochastic 4", "bf16 f32 2"}) {
    std::istringstream words(options);
    std::string precision, moments;
    int ranks = 0;
    words >> precision >> moments >> ranks;
    const std::vector<std::string> more = {"--optimizer.clip=0", "--run.precision=" + precision,
                                           "--optimizer.first_moment=" + moments, "--phases.0.micro_batch=0",
                                           "--phases.1.micro_batch=0"};
    const std::string whole = fmt::format("whole_{}_{}", precision, ranks);
    run({"dp", ranks, {}}, whole, -1, more);
    for (size_t i = 0; i < shares.size(); ++i) {
      const std::string name = fmt::format("shares_{}_{}_{}", i, precision, ranks);
      run({"shares", ranks, shares[i]}, name, -1, more);
      EXPECT_EQ(checkpoint_content(folder_ / whole), checkpoint_content(folder_ / name)) << name;
      EXPECT_EQ(losses_of(whole), losses_of(name)) << name;
    }
  }
}

TEST_F(TrainerRanks, StoppedAndResumedOnTheSameLayoutIsTheUndisturbedRun) {
  const RunLayout& layout = layouts().back();
  run(layout, "whole");
  run(layout, "parts", 9);
  run(layout, "parts");
  EXPECT_EQ(difference(folder_ / "whole", folder_ / "parts"), "");
}

/// Every ordered pair: the state that the second layout loads and saves is the first one's bit for bit. What
/// follows depends on that state alone, so each layout continues once, from its neighbour's.
TEST_F(TrainerRanks, EveryLayoutResumesEveryOther) {
  const size_t count = layouts().size();
  ASSERT_GE(count, 8u);
  run(layouts()[0], "whole");
  for (size_t i = 0; i < count; ++i) {
    const RunLayout& from = layouts()[i];
    run(from, from.name, 9);
    const auto state = checkpoint_content(folder_ / from.name);
    for (size_t j = 0; j < count; ++j) {
      const RunLayout& to = layouts()[j];
      if (i == j) continue;
      const std::string name = fmt::format("{}_to_{}", from.name, to.name);
      std::filesystem::copy(folder_ / from.name, folder_ / name, std::filesystem::copy_options::recursive);
      run(to, name, 0);
      EXPECT_EQ(checkpoint_content(folder_ / name), state) << name;
      if (j == (i + 1) % count) {
        run(to, name);
        EXPECT_LE(worst_difference("whole", name), kRounding) << name;
      }
      std::filesystem::remove_all(folder_ / name);
    }
  }
}

/// A quarter of the ranks is lost: the run resumes with smaller batches, from the samples that were consumed.
TEST_F(TrainerRanks, FewerRanksResumeWithTheBatchThatFits) {
  const std::string fit = "--parallel.batch_fit=down";
  run({"four", 4, {}}, "run", 9, {fit});
  std::filesystem::copy(folder_ / "run", folder_ / "other", std::filesystem::copy_options::recursive);
  EXPECT_THROW(run({"three", 3, {}}, "run"), Error);
  run({"three", 3, {}}, "run", -1, {fit, "--phases.1.micro_batch=1"});
  run({"six", 6, {}}, "other", -1, {fit, "--phases.1.micro_batch=1"});
  const std::vector<double> three = losses_of("run"), six = losses_of("other");
  ASSERT_EQ(three.size(), 24u);
  ASSERT_EQ(six.size(), 24u);
  for (size_t i = 0; i < three.size(); ++i) EXPECT_LE(std::abs(three[i] - six[i]) / three[i], 1e-4) << i;
  const CheckpointReader end = CheckpointReader::open(real_file_system(), folder_ / "run/checkpoints");
  const SavedRun saved = SavedRun::of(end);
  EXPECT_EQ(saved.step, 24);
  // 9 steps of 8 sequences, then 6.
  const Recipe recipe = load_recipe(folder_ / "run.toml", {});
  const int64_t first = recipe.phases[0].steps, second = recipe.phases[1].steps;
  EXPECT_EQ(saved.tokens,
            (9 * 8 + (first - 9) * 6) * recipe.phases[0].sequence + second * 6 * recipe.phases[1].sequence);
  const data::SamplerState sampler = data::parse_sampler_state(end.blob("sampler"), "sampler");
  EXPECT_EQ(sampler.samples - sampler.phase_begin, second * 6);
}

}  // namespace ingot::test::trainer_ranks_test
