// Training on the simulated device has the CPU's bits: models, recomputed and offloaded activations, whole
// runs, resumed runs and many ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>

#include "base/error.h"
#include "comm/threads.h"
#include "device/sim/sim_device.h"
#include "support/interrupter.h"
#include "support/sim_orders.h"
#include "support/tape_pass.h"
#include "support/tiny_run.h"
#include "tensor/offload.h"
#include "train/memory_policy.h"
#include "train/trainer.h"

namespace ingot::test::devices_sim_test {

class SimModels : public AnyKernel, public ::testing::WithParamInterface<std::string> {};

TEST_P(SimModels, HaveTheGradientsOfTheCpu) {
  const auto model = small_model(GetParam(), Precision::f32());
  const Pass cpu = pass(*model, {});
  for (const SimOrder& order : kSimOrders) {
    const InSimOrder in_order(order);
    HeapArena arena(sim_device());
    const int64_t launches = sim_device().counters().launches, downloads = sim_device().counters().downloads;
    const Pass sim = pass(*model, {.device = DeviceKind::sim}, HeadMode::store, &arena);
    EXPECT_GT(sim_device().counters().launches, launches + 50);    // every op, forward and backward
    EXPECT_LT(sim_device().counters().downloads, downloads + 10);  // the head's statistics
    EXPECT_EQ(sim.gradients, cpu.gradients) << sim_order_text(order);
    EXPECT_EQ(sim.peak, cpu.peak);
    EXPECT_EQ(sim.live_after, 0);
  }
}

TEST_P(SimModels, HaveThemWhateverIsRecomputedOrOffloaded) {
  const auto model = small_model(GetParam(), Precision::bf16());
  const Pass cpu = pass(*model, {}, HeadMode::gradient);
  const TempDir folder;
  const auto store = device_offload_store(sim_device(), file_offload_store(folder.path()));
  for (const NamedPolicy& policy :
       {NamedPolicy({"activation", "add_norm"}, {}), NamedPolicy({}, {"attention/", "mlp/"})})
    for (const SimOrder& order : kSimOrders) {
      const InSimOrder in_order(order);
      HeapArena arena(sim_device());
      TapeOptions options{.device = DeviceKind::sim};
      options.policy = &policy;
      options.offload_store = store.get();
      EXPECT_EQ(pass(*model, options, HeadMode::gradient, &arena).gradients, cpu.gradients)
          << sim_order_text(order);
      EXPECT_EQ(arena.live_bytes(), 0);
    }
}

/// A store of host memory that has no space.
class FullStore final : public OffloadStore {
 public:
  Handle write(const void*, int64_t) override { throw Error("the store has no space", "make some"); }
  void read(Handle, void*) override {}
  void wait(Handle) override {}
  void forget(Handle) override { ADD_FAILURE() << "of what was never written"; }
};

TEST(DeviceOffload, AValueThatIsForgottenIsNotWrittenOnTheHost) {
  for (const SimOrder& order : kSimOrders) {
    const InSimOrder in_order(order);
    const auto store = device_offload_store(sim_device(), std::make_unique<FullStore>());
    const Buffer values(4096, Backing::memory, DeviceKind::sim, "values");
    const auto first = store->write(values.on_device(), values.bytes());
    store->forget(first);
    const auto second = store->write(values.on_device(), values.bytes());
    EXPECT_THROW(store->wait(second), Error);
  }
}

TEST_P(SimModels, HaveThoseOfTheCpuInFp8) {
  const auto model = small_model(GetParam(), Precision::bf16());
  const NamedPolicy policy({"add_norm.h"}, {}, {"activation", "attention/", "experts/"});
  const Pass cpu = pass(*model, {.policy = &policy}, HeadMode::gradient);
  for (const SimOrder& order : kSimOrders) {
    const InSimOrder in_order(order);
    HeapArena arena(sim_device());
    TapeOptions options{.device = DeviceKind::sim};
    options.policy = &policy;
    EXPECT_EQ(pass(*model, options, HeadMode::gradient, &arena).gradients, cpu.gradients)
        << sim_order_text(order);
    EXPECT_EQ(arena.live_bytes(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SimModels, ::testing::ValuesIn(small_model_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// What a store of offloaded values may forget.
enum class Mistake { none, leaves_early, given_back_early, lands_early };

/// Keeps offloaded values of the simulated device in memory, with one mistake.
class MistakenStore final : public OffloadStore {
 public:
  explicit MistakenStore(Mistake mistake) : mistake_(mistake) {}
  Handle write(const void* data, int64_t bytes) override {
    Entry& e = entries_[next_];
    e.bytes.resize(static_cast<size_t>(bytes));
    if (mistake_ != Mistake::leaves_early)
      device_.wait(StreamRole::copy_out, device_.record(StreamRole::compute));
    device_.begin_download(e.bytes.data(), data, bytes, StreamRole::copy_out);
    e.left = device_.record(StreamRole::copy_out);
    return next_++;
  }
  void read(Handle handle, void* data) override {
    entries_.at(handle).to = data;
    device_.wait(StreamRole::copy_in, device_.record(StreamRole::compute));
  }
  void wait(Handle handle) override {
    const Entry& e = entries_.at(handle);
    if (e.to == nullptr) {
      if (mistake_ != Mistake::given_back_early) device_.synchronize(e.left);
      return;
    }
    device_.upload(e.to, e.bytes.data(), static_cast<int64_t>(e.bytes.size()), StreamRole::copy_in);
    if (mistake_ != Mistake::lands_early)
      device_.wait(StreamRole::compute, device_.record(StreamRole::copy_in));
  }
  void forget(Handle handle) override {
    device_.synchronize(entries_.at(handle).left);
    entries_.erase(handle);
  }

 private:
  struct Entry {
    std::vector<char> bytes;
    DeviceEvent left;
    void* to = nullptr;
  };
  Mistake mistake_;
  Device& device_ = sim_device();
  std::map<Handle, Entry> entries_;
  Handle next_ = 0;
};

/// The gradients of a pass with offloaded values.
std::vector<std::string> offloaded_pass(Mistake mistake, Model& model) {
  const NamedPolicy policy({}, {"attention/", "mlp/"});
  MistakenStore store(mistake);
  HeapArena arena(sim_device());
  TapeOptions options{.device = DeviceKind::sim};
  options.policy = &policy;
  options.offload_store = &store;
  return pass(model, options, HeadMode::store, &arena).gradients;
}

/// A value may leave in a destructor, where an error ends the program.
void end_with_fault(Mistake mistake, Model& model) {
  try {
    offloaded_pass(mistake, model);
  } catch (const InternalError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::abort();
  }
}

class SimStreamsDeathTest : public AnyKernel {};

TEST_F(SimStreamsDeathTest, AForgottenWaitInAModelIsFoundAndNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto model = small_model("llama", Precision::f32());
  const std::vector<std::string> cpu = pass(*model, {}).gradients;
  for (const SimOrder& order : kSimOrders) {
    const InSimOrder in_order(order);
    EXPECT_EQ(offloaded_pass(Mistake::none, *model), cpu) << sim_order_text(order);
    EXPECT_DEATH(end_with_fault(Mistake::leaves_early, *model),
                 "stream copy_out would read .+ stream compute .+ of op '.+'");
    EXPECT_DEATH(end_with_fault(Mistake::given_back_early, *model),
                 "given back before the read that stream copy_out .+ of op '.+'");
    EXPECT_DEATH(end_with_fault(Mistake::lands_early, *model),
                 "stream compute would read .+ the write that stream copy_in .+ of category 'restored'");
  }
}

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
      Interrupter stopper(steps);
      if (steps > 0 && trainer.leads()) trainer.observe(&stopper);
      EXPECT_EQ(trainer.run().finished, steps == 0);
    });
  }
  void expect_the_cpus_bits(const std::string& name, const std::vector<std::string>& options, int ranks) {
    run(DeviceKind::cpu, name + "-cpu", options, ranks);
    for (const SimOrder& order : kSimOrders) {
      const InSimOrder in_order(order);
      const std::string sim = name + "-" + sim_order_text(order);
      run(DeviceKind::sim, sim, options, ranks);
      EXPECT_EQ(difference(folder_ / (name + "-cpu"), folder_ / sim), "") << sim;
    }
  }

  TempDir folder_;
  const Quiet quiet_;
};

TEST_F(SimRuns, HaveTheBitsOfTheCpu) {
  set_kernel_policy(KernelPolicy::strict);  // every op has a kernel there
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

/// On many ranks, where every op is accepted too.
class SimRanks : public SimRuns {
 protected:
  SimRanks() { set_kernel_policy(KernelPolicy::strict); }
};

TEST_F(SimRanks, OfDataAndExpertsHaveTheBitsOfTheCpu) {
  expect_the_cpus_bits("dp2_ep2", {"--parallel.expert=2"}, 2);
}
TEST_F(SimRanks, ThatShardHaveTheBitsOfTheCpu) {
  expect_the_cpus_bits("full4_ep2",
                       {"--parallel.expert=2", "--parallel.shard=full", "--parallel.shard_ranks=2"}, 4);
}
TEST_F(SimRanks, OfTensorsHaveTheBitsOfTheCpu) {
  expect_the_cpus_bits("tp2_sequence", {"--parallel.tensor=2", "--parallel.sequence=true"}, 2);
}
TEST_F(SimRanks, OfContextHaveTheBitsOfTheCpu) {
  expect_the_cpus_bits("cp2_ring", {"--parallel.context=2", "--parallel.context_form=ring"}, 2);
}
TEST_F(SimRanks, OfAPipelineHaveTheBitsOfTheCpu) {
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
