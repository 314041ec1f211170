// Masters, gradients and moments in bf16, activations in FP8, and optimizers that a program registers: runs
// that are stopped and resumed end with the same bits, other layouts train the same model, the plan counts
// the bytes, and what cannot be is refused by name.
#include <gtest/gtest.h>

#include <cmath>

#include "comm/threads.h"
#include "optim/element_rule.h"
#include "optim/optimizer.h"
#include "report/metrics.h"
#include "report/run_record.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::storage_ranks_test {

using Options = std::vector<std::string>;

const Options kHalf = {"--run.precision=bf16", "--optimizer.master=bf16_stochastic",
                       "--optimizer.gradient=bf16", "--optimizer.first_moment=bf16_stochastic",
                       "--optimizer.second_moment=bf16_stochastic"};
const Options kLion = {"--optimizer.matrices=lion", "--phases.0.lr=1e-3", "--phases.1.lr=1e-3"};

Options operator+(Options a, const Options& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The sign of a mean of gradients (Chen et al. 2023).
class Lion final : public UpdateRule {
 public:
  std::vector<StateSlot> slots(const ParamView& p) const override { return {{"momentum", p.part_shape()}}; }
  std::vector<UpdateStat> step(std::span<const RuleTensor> tensors, int64_t, double grad_scale) override {
    return update_elements(tensors, grad_scale, [](const RuleTensor& t, float w, float g, float* m) {
      const float mean = 0.9f * m[0] + 0.1f * g;
      m[0] = 0.99f * m[0] + 0.01f * g;
      const float sign = mean > 0 ? 1.0f : mean < 0 ? -1.0f : 0.0f;
      return w - static_cast<float>(t.lr) * (sign + static_cast<float>(t.weight_decay) * w);
    });
  }
};

/// Asks for one number per row, which no checkpoint of a run holds.
class RowRule final : public UpdateRule {
 public:
  std::vector<StateSlot> slots(const ParamView& p) const override { return {{"row", {p.matrix_rows()}}}; }
  std::vector<UpdateStat> step(std::span<const RuleTensor> tensors, int64_t, double) override {
    return std::vector<UpdateStat>(tensors.size());
  }
};

/// Stops a run as Ctrl-C would, before that step (counted from where it started).
class StopBefore final : public RunObserver {
 public:
  explicit StopBefore(int step) : left_(step) {}
  void enters(StepPart part) override {
    if (part == StepPart::data && left_-- == 0) Trainer::interrupt();
  }
  void tensor(const std::string&, const Tensor&) override {}

 private:
  int left_;
};

class Storage : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    register_optimizer("lion", RuleTakes::elements,
                       [](const OptimizerConfig&, int64_t) { return std::make_unique<Lion>(); });
    register_optimizer("whole", RuleTakes::whole_matrices,
                       [](const OptimizerConfig&, int64_t) { return std::make_unique<Lion>(); });
    register_optimizer("rows", RuleTakes::elements,
                       [](const OptimizerConfig&, int64_t) { return std::make_unique<RowRule>(); });
  }
  void SetUp() override { write_text(folder_ / "text.txt", tiny_text(4000)); }

  Recipe recipe(const std::string& run, const Options& options) {
    const std::string path = folder_ / (run + ".toml");
    write_text(path, tiny_recipe(folder_ / run, folder_ / "data", folder_ / "text.txt"));
    return load_recipe(path, Options{"--phases.0.batch=8", "--phases.1.batch=8", "--phases.0.micro_batch=2",
                                     "--phases.1.micro_batch=2"} +
                                 options);
  }
  /// `steps` >= 0: stops after that many.
  void run(const std::string& name, int ranks, const Options& options, int steps = -1) {
    const Recipe r = recipe(name, options);
    run_ranks(ranks, [&](ThreadRank& self) {
      Trainer trainer(real_file_system(), r, StartMode::resume_or_start, &self);
      StopBefore stop(steps - 1);
      if (steps > 0 && trainer.leads()) trainer.observe(&stop);
      EXPECT_EQ(trainer.run().finished, steps < 0);
    });
  }
  /// Largest relative difference of a step's loss.
  double distance(const std::string& left, const std::string& right) {
    const auto rows = [&](const std::string& name) {
      return read_metrics(real_file_system(), folder_ / (name + "/" + run_files::kMetrics));
    };
    const std::vector<MetricRow> a = rows(left), b = rows(right);
    EXPECT_EQ(a.size(), 24u);
    EXPECT_EQ(b.size(), 24u);
    double worst = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      worst = std::max(worst, std::abs(*a[i].scalar("loss") / *b[i].scalar("loss") - 1));
    return worst;
  }
  std::string refusal(int ranks, const Options& options) {
    try {
      run("refused", ranks, options);
    } catch (const Error& e) {
      return e.what();
    }
    return "not refused";
  }
  TempDir folder_;
  const Quiet quiet_;
};

TEST_F(Storage, HalfTheBytesTrainAndResumeToTheSameBits) {
  run("f32", 1, {"--run.precision=bf16"});
  run("half", 1, kHalf);
  EXPECT_LT(distance("f32", "half"), 0.02);
  EXPECT_GT(distance("f32", "half"), 1e-6) << "the keys do nothing";
  run("stopped", 1, kHalf, 9);
  run("stopped", 1, kHalf);
  EXPECT_EQ(difference(folder_ / "half", folder_ / "stopped"), "");
}

TEST_F(Storage, OtherLayoutsTrainTheSameModel) {
  run("one", 1, kHalf);
  run("two", 2, kHalf);
  EXPECT_LT(distance("one", "two"), 0.01);
  const Options sharded = {"--run.precision=bf16", "--optimizer.gradient=bf16", "--parallel.shard=full"};
  run("sharded", 2, sharded);
  EXPECT_LT(distance("one", "sharded"), 0.02);
  run("moved", 2, sharded, 9);  // masters in f32, and one rank resumes with bf16
  run("moved", 1, kHalf);
  EXPECT_LT(distance("one", "moved"), 0.02);
}

TEST_F(Storage, ThePlanCountsThem) {
  const auto plan = [&](const Options& options) {
    return preflight(TrainEngine(recipe("plan", Options{"--model.vocab=300"} + options), Backing::nothing),
                     nullptr);
  };
  const Preflight f32 = plan({"--run.precision=bf16"}), half = plan(kHalf);
  const auto ratio = [](int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
  EXPECT_NEAR(ratio(half.gradient_bytes, f32.gradient_bytes), 0.5, 0.01);
  EXPECT_NEAR(ratio(half.optimizer_bytes, f32.optimizer_bytes), 0.5, 0.05);
  EXPECT_NEAR(ratio(half.weight_bytes, f32.weight_bytes), 0.55, 0.1) << "vectors keep 4 bytes";
  EXPECT_NEAR(ratio(half.snapshot_bytes, f32.snapshot_bytes), 0.55, 0.1);
  EXPECT_GT(half.transient_bytes, 0) << "fp32 sums of a layer";
}

TEST_F(Storage, RegisteredOptimizersTrainResumeAndAreSharded) {
  run("one", 1, kLion);
  run("stopped", 1, kLion, 9);
  run("stopped", 1, kLion);
  EXPECT_EQ(difference(folder_ / "one", folder_ / "stopped"), "");
  const auto content = checkpoint_content(folder_ / "one");
  EXPECT_EQ(content.count("optimizer/layers.0.attention.out.weight.momentum"), 1u);
  run("zero", 2, kLion + Options{"--parallel.shard=optimizer"});
  run("full", 2, kLion + Options{"--parallel.shard=full"}, 9);
  run("full", 1, kLion);
  EXPECT_LT(distance("one", "zero"), 1e-4) << "a sign may turn where sums are rounded";
  EXPECT_LT(distance("one", "full"), 1e-4);
  run("half", 1, kLion + kHalf);
  EXPECT_LT(distance("one", "half"), 0.02);
}

TEST_F(Storage, WhatCannotBeIsRefusedByName) {
  const auto has = [&](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refusal(1, {"--optimizer.master=bf16"}), "a weight stands still");
  has(refusal(1, {"--optimizer.master=bf16_stochastic", "--run.precision=f32"}),
      "an f32 run read masters in f32");
  has(refusal(1, {"--optimizer.master=bf16_stochastic", "--run.precision=bf16", "--parallel.shard=full"}),
      "masters in bf16 are not sharded");
  has(refusal(1, {"--optimizer.master=bf16_stochastic", "--run.precision=bf16", "--optimizer.qk_clip=50"}),
      "qk_clip scales masters in f32");
  has(refusal(1, {"--optimizer.gradient=bf16_stochastic"}), "rounded to nearest");
  has(refusal(1, {"--optimizer.gradient=bf16", "--parallel.shard=optimizer"}), "sums gradients in place");
  has(refusal(1, {"--optimizer.gradient=bf16", "--parallel.pipeline=2"}), "stages of a pipeline");
  has(refusal(1, {"--optimizer.matrices=soap"}),
      "no optimizer 'soap' is registered; there are adamw, ademamix, ");
  has(refusal(1, {"--optimizer.others=whole"}), "whole needs matrices");
  has(refusal(1, {"--optimizer.matrices=rows"}), "wants state 'row'");
  has(refusal(2, {"--optimizer.matrices=whole", "--parallel.shard=full"}), "takes whole matrices");
  EXPECT_THROW(register_optimizer("lion", RuleTakes::elements, nullptr), Error);
  EXPECT_THROW(register_optimizer("", RuleTakes::elements, nullptr), Error);
}

/// In backward alone, ranks that sum in another order round a few values to the neighbouring code, and tensor
/// ranks have tiles of their own columns.
TEST_F(Storage, ActivationsInFp8OnOtherLayouts) {
  const Options fp8 = {"--memory.fp8=[\"activation\", \"add_norm.h\"]"},
                pipeline = {"--parallel.pipeline=2", "--parallel.schedule=zero_bubble"};
  run("one", 1, fp8);
  const std::tuple<const char*, int, Options> layouts[] = {
      {"dp2", 2, {}},
      {"ep2", 2, {"--parallel.expert=2"}},
      {"full2", 2, {"--parallel.shard=full"}},
      {"tp2", 2, {"--parallel.tensor=2", "--parallel.sequence=true"}},
      {"cp2", 2, {"--parallel.context=2"}},
      {"pp2", 2, pipeline},
      {"pp2_ep2", 4, {"--parallel.pipeline=2", "--parallel.schedule=merged", "--parallel.expert=2"}}};
  for (const auto& [name, ranks, options] : layouts) {
    run(name, ranks, options + fp8);
    for (const MetricRow& row :
         read_metrics(real_file_system(), folder_ / fmt::format("{}/{}", name, run_files::kMetrics)))
      EXPECT_EQ(*row.scalar("memory_plan_misses"), 0) << name << ": the slab is the planned one";
    EXPECT_LT(distance("one", name), name == std::string("tp2") ? 3e-5 : 3e-6) << name;
  }
  run("again", 2, pipeline + fp8, 9);
  run("again", 2, pipeline + fp8);
  EXPECT_EQ(difference(folder_ / "pp2", folder_ / "again"), "");
}

}  // namespace ingot::test::storage_ranks_test
