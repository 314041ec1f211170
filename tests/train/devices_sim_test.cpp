// Training on the simulated device has the CPU's bits: models, recomputed and offloaded activations, whole
// runs, resumed runs and many ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "comm/threads.h"
#include "device/sim/sim_device.h"
#include "support/tape_pass.h"
#include "support/tiny_run.h"
#include "tensor/offload.h"
#include "train/memory_policy.h"
#include "train/trainer.h"

namespace ingot::test::devices_sim_test {

/// The device of the process while this lives.
class ComputeOn {
 public:
  explicit ComputeOn(DeviceKind kind) { set_compute_device(kind); }
  ~ComputeOn() { set_compute_device(DeviceKind::cpu); }
  ComputeOn(const ComputeOn&) = delete;
  ComputeOn& operator=(const ComputeOn&) = delete;
};

class SimModels : public AnyKernel, public ::testing::WithParamInterface<std::string> {};

TEST_P(SimModels, HaveTheGradientsOfTheCpu) {
  const auto model = small_model(GetParam(), Precision::f32());
  const Pass cpu = pass(*model, {});
  HeapArena arena(sim_device());
  const int64_t downloads = sim_device().counters().downloads;
  const Pass sim = pass(*model, {.device = DeviceKind::sim}, HeadMode::store, &arena);
  EXPECT_GT(sim_device().counters().downloads, downloads + 100);
  EXPECT_EQ(sim.gradients, cpu.gradients);
  EXPECT_EQ(sim.peak, cpu.peak);
  EXPECT_EQ(sim.live_after, 0);
}

TEST_P(SimModels, HaveThemWhateverIsRecomputedOrOffloaded) {
  const auto model = small_model(GetParam(), Precision::bf16());
  const Pass cpu = pass(*model, {}, HeadMode::gradient);
  const TempDir folder;
  const auto store = device_offload_store(sim_device(), file_offload_store(folder.path()));
  for (const NamedPolicy& policy :
       {NamedPolicy({"activation", "add_norm"}, {}), NamedPolicy({}, {"attention/", "mlp/"})}) {
    HeapArena arena(sim_device());
    TapeOptions options{.device = DeviceKind::sim};
    options.policy = &policy;
    options.offload_store = store.get();
    EXPECT_EQ(pass(*model, options, HeadMode::gradient, &arena).gradients, cpu.gradients);
    EXPECT_EQ(arena.live_bytes(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SimModels, ::testing::ValuesIn(small_model_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// The tiny run, which has samples, validation and checkpoints.
class SimRuns : public AnyKernel {
 protected:
  void SetUp() override { write_text(folder_ / "text.txt", tiny_text(4000)); }

  /// Runs the recipe with these options; `steps` > 0: ends it as Ctrl-C does, before that step.
  void run(DeviceKind device, const std::string& name, std::vector<std::string> options, int ranks = 1,
           int steps = 0) {
    const std::string path = folder_ / (name + ".toml");
    write_text(path, tiny_recipe(folder_ / name, folder_ / "data", folder_ / "text.txt"));
    options.insert(options.end(), {"--phases.1.batch=8", "--phases.0.batch=8", "--phases.0.micro_batch=1",
                                   "--phases.1.micro_batch=2"});
    const Recipe recipe = load_recipe(path, options);
    const ComputeOn on(device);
    run_ranks(ranks, [&](ThreadRank& self) {
      Trainer trainer(real_file_system(), recipe, StartMode::resume_or_start, &self);
      Stopper stopper(steps);
      if (steps > 0 && trainer.leads()) trainer.observe(&stopper);
      EXPECT_EQ(trainer.run().finished, steps == 0);
    });
  }
  void expect_the_cpus_bits(const std::string& name, const std::vector<std::string>& options, int ranks) {
    run(DeviceKind::cpu, name + "-cpu", options, ranks);
    run(DeviceKind::sim, name + "-sim", options, ranks);
    EXPECT_EQ(difference(folder_ / (name + "-cpu"), folder_ / (name + "-sim")), "") << name;
  }

  TempDir folder_;
  const Quiet quiet_;

 private:
  class Stopper final : public RunObserver {
   public:
    explicit Stopper(int steps) : left_(steps) {}
    void enters(StepPart part) override {
      if (part == StepPart::data && left_-- == 0) Trainer::interrupt();
    }
    bool wants_tensors() const override { return false; }
    void tensor(const std::string&, const Tensor&) override {}

   private:
    int left_;
  };
};

TEST_F(SimRuns, HaveTheBitsOfTheCpu) {
  expect_the_cpus_bits("alone", {}, 1);
}

TEST_F(SimRuns, BeginOnOneDeviceAndEndOnTheOther) {
  run(DeviceKind::cpu, "cpu", {});
  run(DeviceKind::cpu, "cpu-then-sim", {}, 1, 9);
  run(DeviceKind::sim, "cpu-then-sim", {});
  EXPECT_EQ(difference(folder_ / "cpu", folder_ / "cpu-then-sim"), "");
  run(DeviceKind::sim, "sim-then-cpu", {}, 1, 9);
  run(DeviceKind::cpu, "sim-then-cpu", {});
  EXPECT_EQ(difference(folder_ / "cpu", folder_ / "sim-then-cpu"), "");
}

TEST_F(SimRuns, OnManyRanksHaveTheBitsOfTheCpu) {
  expect_the_cpus_bits("full4_ep2",
                       {"--parallel.expert=2", "--parallel.shard=full", "--parallel.shard_ranks=2"}, 4);
  expect_the_cpus_bits("tp2_sequence", {"--parallel.tensor=2", "--parallel.sequence=true"}, 2);
  expect_the_cpus_bits("cp2_ring", {"--parallel.context=2", "--parallel.context_form=ring"}, 2);
  expect_the_cpus_bits("pp2", {"--parallel.pipeline=2", "--parallel.schedule=zero_bubble"}, 2);
}

TEST_F(SimRuns, NameTheFirstValueThatIsNotFinite) {
  const auto model = small_model("llama", Precision::f32());
  model->weights().master(0).as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  HeapArena arena(sim_device());
  TapeOptions options{.device = DeviceKind::sim};
  options.check_finite = true;
  EXPECT_THROW(pass(*model, options, HeadMode::store, &arena), Error);
}

}  // namespace ingot::test::devices_sim_test
