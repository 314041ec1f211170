// Models train on the kernels of GPUs, emulated, with the CPU's bits: gradients of every small model, and
// whole runs, begun and resumed. Ops of other models that have no such kernels run on the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "device/gpu/emulator.h"
#include "support/interrupter.h"
#include "support/sim_orders.h"
#include "support/tape_pass.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::emulated_runs_emulated_test {

/// Emulated kernels, while this lives; `alone`: ops have no others.
class Emulated {
 public:
  explicit Emulated(uint64_t seed, bool alone = false) { set_emulation({true, seed, alone}); }
  ~Emulated() { set_emulation({}); }
  Emulated(const Emulated&) = delete;
  Emulated& operator=(const Emulated&) = delete;
};

/// Kernels launched while this lives.
class Launches {
 public:
  int64_t of(const char* kernel) const {
    return emulated_launches()[kernel] - (before_.count(kernel) > 0 ? before_.at(kernel) : 0);
  }

 private:
  const std::map<std::string, int64_t> before_ = emulated_launches();
};

bool has_experts(const std::string& model) {
  return model.find("moe") != std::string::npos || model == "zaya";
}

class EmulatedModels : public AnyKernel, public ::testing::WithParamInterface<std::string> {};

TEST_P(EmulatedModels, HaveTheGradientsOfTheCpu) {
  for (const Precision& precision : {Precision::f32(), Precision::bf16()}) {
    const auto model = small_model(GetParam(), precision);
    const Pass cpu = pass(*model, {});
    {
      const Launches launches;
      HeapArena arena(sim_device());
      EXPECT_EQ(pass(*model, {.device = DeviceKind::sim}, HeadMode::store, &arena).gradients, cpu.gradients);
      EXPECT_EQ(launches.of("add_norm_forward"), 0);  // nobody asked for them
    }
    for (const SimOrder& order : {SimOrder{}, SimOrder{true, 1}}) {
      const Emulated emulated(order.seed + 5);
      const InSimOrder in_order(order);
      const Launches launches;
      HeapArena arena(sim_device());
      EXPECT_EQ(pass(*model, {.device = DeviceKind::sim}, HeadMode::store, &arena).gradients, cpu.gradients)
          << sim_order_text(order);
      for (const char* kernel : {"add_norm_forward", "add_norm_backward", "activation_forward",
                                 "activation_backward", "embedding_forward"})
        EXPECT_GT(launches.of(kernel), 0) << kernel;
      for (const char* kernel : {"row_map_place", "gather"})
        EXPECT_EQ(launches.of(kernel) > 0, has_experts(GetParam())) << kernel;
      for (const char* kernel : {"mla_latents_forward", "mla_pack_backward"})
        EXPECT_EQ(launches.of(kernel) > 0, GetParam().rfind("mla", 0) == 0) << kernel;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedModels, ::testing::ValuesIn(small_model_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

class EmulatedRuns : public ::testing::Test {
 protected:
  void SetUp() override { write_text(folder_ / "text.txt", tiny_text(4000)); }

  /// 20 steps of a model in f32, dense but for `options`; `steps` > 0: the run ends as by Ctrl-C before that
  /// step.
  void run(DeviceKind device, const std::string& name, int steps = 0,
           const std::vector<std::string>& options = {}) {
    const std::string path = folder_ / (name + ".toml");
    write_text(path, base_recipe(folder_.path(), 32, "kind = \"characters\""));
    std::vector<std::string> all = {"--run.folder=" + (folder_ / name), "--run.precision=f32",
                                    "--phases.0.steps=20", "--checkpoint.every=5"};
    all.insert(all.end(), options.begin(), options.end());
    const Recipe recipe = load_recipe(path, all);
    const ComputeOn on(device);
    Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start);
    Interrupter stopper(steps);
    if (steps > 0) trainer.observe(&stopper);
    EXPECT_EQ(trainer.run().finished, steps == 0);
  }

  /// A run that begins on one and ends on the other, with activations of ops and of whole segments
  /// recomputed, ends with the checkpoint in the folder "cpu".
  void expect_moves(std::vector<std::string> options) {
    const auto begin_and_end = [&](const std::string& name, DeviceKind first, DeviceKind second) {
      run(first, name, 9, options);
      run(second, name, 0, options);
      EXPECT_EQ(difference(folder_ / "cpu", folder_ / name), "");
    };
    options.emplace_back("--memory.recompute=[\"activation\", \"add_norm\"]");
    begin_and_end("cpu-then-emulated", DeviceKind::cpu, DeviceKind::sim);
    options.back() = "--memory.recompute=[\"attention/\"]";
    begin_and_end("emulated-then-cpu", DeviceKind::sim, DeviceKind::cpu);
  }

  TempDir folder_;
  const Quiet quiet_;
};

TEST_F(EmulatedRuns, WithActivationsInFp8EndWithTheCheckpointOfTheCpu) {
  const std::vector<std::string> fp8 = {"--memory.fp8=[\"activation\", \"add_norm.h\"]"};
  run(DeviceKind::cpu, "cpu", 0, fp8);
  const Emulated emulated(1, true);
  const Launches launches;
  run(DeviceKind::sim, "emulated", 0, fp8);
  EXPECT_EQ(difference(folder_ / "cpu", folder_ / "emulated"), "");
  for (const char* kernel : {"quantize", "dequantize"}) EXPECT_GT(launches.of(kernel), 0) << kernel;
}

TEST_F(EmulatedRuns, EndWithTheCheckpointOfTheCpu) {
  const std::vector<std::string> clip = {"--optimizer.qk_clip=0.02"};
  run(DeviceKind::cpu, "cpu", 0, clip);
  const Emulated emulated(1, true);
  const Launches launches;
  run(DeviceKind::sim, "emulated", 0, clip);
  EXPECT_EQ(difference(folder_ / "cpu", folder_ / "emulated"), "");
  for (const char* kernel : {"product",
                             "add_norm_forward",
                             "activation_forward",
                             "embedding_forward",
                             "embedding_gradient",
                             "head_statistics",
                             "head_d_logits",
                             "qk_prepare_forward",
                             "qk_prepare_backward",
                             "attention_forward",
                             "attention_queries",
                             "attention_keys",
                             "sum_squares",
                             "decision",
                             "adamw",
                             "update_stats",
                             "momentum",
                             "normalise",
                             "symmetric_product",
                             "batched_product",
                             "apply",
                             "qk_factors",
                             "qk_scale"})
    EXPECT_GE(launches.of(kernel), 20) << kernel;  // at least once a step
  expect_moves(clip);
}

TEST_F(EmulatedRuns, OfAMixtureEndWithTheCheckpointOfTheCpu) {
  const std::vector<std::string> mixture = {"--model.moe.experts=5", "--model.moe.top_k=2",
                                            "--model.moe.hidden=12", "--model.moe.balance=adamw"};
  run(DeviceKind::cpu, "cpu", 0, mixture);
  const Emulated emulated(2, true);
  const Launches launches;
  run(DeviceKind::sim, "emulated", 0, mixture);
  EXPECT_EQ(difference(folder_ / "cpu", folder_ / "emulated"), "");
  for (const char* kernel : {"route_forward", "route_backward", "row_map_place", "gather", "grouped_rows",
                             "grouped_depth", "sum_squares", "adamw", "apply", "balance"})
    EXPECT_GE(launches.of(kernel), 20) << kernel;
  expect_moves(mixture);
}

TEST_F(EmulatedRuns, OfAZayaModelEndWithTheCheckpointOfTheCpu) {
  const std::vector<std::string> zaya = {"--model.preset=zaya-tiny",
                                         "--model.layers=2",
                                         "--model.heads=4",
                                         "--model.kv_heads=2",
                                         "--model.moe.experts=4",
                                         "--model.moe.hidden=12",
                                         "--model.moe.router_width=8",
                                         "--data.sources.0.documents=blank_line",
                                         "--phases.0.sequence=32"};
  run(DeviceKind::cpu, "cpu", 0, zaya);
  const Emulated emulated(3, true);
  const Launches launches;
  run(DeviceKind::sim, "emulated", 0, zaya);
  EXPECT_EQ(difference(folder_ / "cpu", folder_ / "emulated"), "");
  for (const char* kernel : {"cca_begin_listed", "cca_forward", "cca_heads_backward", "cca_grouped_backward",
                             "cca_depthwise_backward", "attention_forward", "route_forward", "grouped_rows",
                             "sum_squares", "adamw"})
    EXPECT_GE(launches.of(kernel), 20) << kernel;
  expect_moves(zaya);
}

TEST_F(EmulatedRuns, OfLatentAttentionEndWithTheCheckpointOfTheCpu) {
  const std::vector<std::string> options = {
      "--model.attention=mla",    "--model.kv_heads=2",        "--model.head_width=0",
      "--model.mla.q_rank=12",    "--model.mla.kv_rank=10",    "--model.mla.nope_width=6",
      "--model.mla.rope_width=4", "--model.mla.value_width=6", "--model.moe.experts=5",
      "--model.moe.top_k=2",      "--model.moe.hidden=12",     "--model.moe.sequence_aux_coefficient=0.01"};
  run(DeviceKind::cpu, "cpu", 0, options);
  const Emulated emulated(4, true);
  const Launches launches;
  run(DeviceKind::sim, "emulated", 0, options);
  EXPECT_EQ(difference(folder_ / "cpu", folder_ / "emulated"), "");
  for (const char* kernel :
       {"mla_latents_forward", "mla_latents_backward", "mla_latents_sums", "mla_pack_forward",
        "mla_pack_backward", "attention_forward", "route_list_forward", "route_list_backward", "balance_list",
        "balance_list_gradient", "balance_list_loss"})
    EXPECT_GE(launches.of(kernel), 20) << kernel;
}

TEST_F(EmulatedRuns, OfEvenedExpertsEndWithTheCheckpointOfTheCpu) {
  const std::vector<std::string> options = {
      "--model.moe.experts=5",           "--model.moe.top_k=2",
      "--model.moe.hidden=12",           "--model.moe.selection=sinkhorn",
      "--model.moe.score=softmax_first", "--model.moe.normalize=false"};
  run(DeviceKind::cpu, "cpu", 0, options);
  const Emulated emulated(5, true);
  const Launches launches;
  run(DeviceKind::sim, "emulated", 0, options);
  EXPECT_EQ(difference(folder_ / "cpu", folder_ / "emulated"), "");
  for (const char* kernel : {"sinkhorn_begin", "sinkhorn_rest", "sinkhorn_choose"})
    EXPECT_GE(launches.of(kernel), 20) << kernel;
}

TEST_F(EmulatedRuns, InBf16OnTensorCoresRepeatAndResumeWhereTheyAre) {
  const std::vector<std::string> narrow = {"--run.precision=bf16", "--phases.0.steps=10",
                                           "--optimizer.muon.precision=bf16"};
  const Launches launches;
  for (const uint64_t seed : {1, 2}) {
    set_emulation({.on = true, .seed = seed, .alone = true, .mma = true});
    run(DeviceKind::sim, "seed" + std::to_string(seed), 0, narrow);
  }
  for (const char* kernel : {"mma_product", "symmetric_mma_product", "batched_mma_product"})
    EXPECT_GE(launches.of(kernel), 20) << kernel;
  for (const char* kernel : {"product", "symmetric_product", "batched_product"})
    EXPECT_EQ(launches.of(kernel), 0) << kernel;
  EXPECT_EQ(difference(folder_ / "seed1", folder_ / "seed2"), "");
  run(DeviceKind::sim, "resumed", 6, narrow);
  run(DeviceKind::sim, "resumed", 0, narrow);
  EXPECT_EQ(difference(folder_ / "seed1", folder_ / "resumed"), "");
  run(DeviceKind::sim, "elsewhere", 6, narrow);
  set_emulation({});
  EXPECT_THROW(run(DeviceKind::cpu, "elsewhere", 0, narrow), Error);
}

TEST_F(EmulatedRuns, InBf16ByHoppersInstructionsEndWithTheSameCheckpoint) {
  const std::vector<std::string> wide = {"--run.precision=bf16", "--phases.0.steps=4", "--model.width=64",
                                         "--model.hidden=72", "--optimizer.muon.precision=bf16"};
  const Launches launches;
  for (const bool wgmma : {false, true}) {
    set_emulation({.on = true, .seed = 3, .alone = true, .mma = true, .wgmma = wgmma});
    run(DeviceKind::sim, wgmma ? "wgmma" : "mma", 0, wide);
  }
  set_emulation({});
  for (const char* kernel : {"wgmma_product", "symmetric_wgmma_product", "batched_wgmma_product"})
    EXPECT_GE(launches.of(kernel), 20) << kernel;
  EXPECT_EQ(difference(folder_ / "mma", folder_ / "wgmma"), "");
}

TEST_F(EmulatedRuns, InF32WithMuonInBf16ResumeWhereTheyAre) {
  const std::vector<std::string> muon = {"--phases.0.steps=6", "--optimizer.muon.precision=bf16"};
  set_emulation({.on = true, .seed = 4, .alone = true, .mma = true});
  run(DeviceKind::sim, "whole", 0, muon);
  for (const char* name : {"resumed", "elsewhere"}) run(DeviceKind::sim, name, 3, muon);
  run(DeviceKind::sim, "resumed", 0, muon);
  EXPECT_EQ(difference(folder_ / "whole", folder_ / "resumed"), "");
  set_emulation({});
  EXPECT_THROW(run(DeviceKind::cpu, "elsewhere", 0, muon), Error);
}

}  // namespace ingot::test::emulated_runs_emulated_test
