// A training step on a device: it has the CPU's bits, asks the host once, allocates and copies nothing that
// was not planned, and changes nothing where a value is not finite.
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "comm/threads.h"
#include "device/sim/sim_device.h"
#include "support/device_steps.h"
#include "support/sim_orders.h"
#include "support/tape_pass.h"

namespace ingot::test::device_step_sim_test {

struct Counts {
  int64_t launches, allocations, uploads, downloads, unplanned_copies, synchronizations, graphs;
};
Counts counts() {
  const DeviceCounters& c = sim_device().counters();
  return {c.launches,         c.allocations,      c.uploads,       c.downloads,
          c.unplanned_copies, c.synchronizations, c.graph_launches};
}

class DeviceSteps : public AnyKernel, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, DeviceSteps,
                         ::testing::Values("llama clip", "mla clip", "moe loads", "mtp-moe", "mtp-moe own",
                                           "zaya", "zaya rounded"),
                         test_name_of);

TEST_P(DeviceSteps, HaveTheBitsOfTheCpu) {
  const Recipe r = recipe_of(GetParam());
  TrainEngine cpu(r);
  cpu.model().weights().initialize(3);
  const std::vector<double> expected = steps(cpu, 5);
  if (cpu.clips_attention()) {
    EXPECT_GT(expected[3], 0) << "no head is clipped";
  }
  for (const SimOrder& order : kSimOrders) {
    const InSimOrder in_order(order);
    const ComputeOn on(DeviceKind::sim);
    const int64_t graphs = sim_device().counters().graph_launches;
    TrainEngine sim(r);
    sim.model().weights().initialize(3);
    EXPECT_EQ(steps(sim, 5), expected) << sim_order_text(order);
    EXPECT_EQ(state_of(sim), state_of(cpu)) << sim_order_text(order);
    // The first two steps are no graphs; then the update is one, and each of two micro-batches.
    EXPECT_EQ(sim_device().counters().graph_launches, graphs + 9);
  }
}

/// Biases stay where a phase freezes them, and move again in the next, from the same graph.
TEST_F(AnyKernel, ADevicesStepsMoveBiasesWhereThePhaseDoes) {
  Recipe r = recipe_of("zaya");
  r.phases.push_back(r.phases.front());
  r.phases.front().freeze_balance = true;
  const auto biases_after = [&](DeviceKind device) {
    const ComputeOn on(device);
    TrainEngine engine(r);
    engine.model().weights().initialize(3);
    const std::string name = Model::router_bias_name(engine.model().decoder().moe_layers().front());
    std::vector<std::string> biases;
    for (const size_t phase : {0, 1, 0}) {
      engine.enter(phase, 0);
      steps(engine, 3);
      biases.push_back(state_of(engine).at(name));
    }
    return biases;
  };
  const std::vector<std::string> cpu = biases_after(DeviceKind::cpu), sim = biases_after(DeviceKind::sim);
  EXPECT_EQ(sim, cpu);
  EXPECT_NE(sim[0], sim[1]);
  EXPECT_EQ(sim[1], sim[2]);
}

TEST_P(DeviceSteps, AskTheHostOnce) {
  const ComputeOn on(DeviceKind::sim);
  for (const AuxScope scope : {AuxScope::micro_batch, AuxScope::global, AuxScope::last_step}) {
    Recipe r = recipe_of(GetParam());
    r.model.moe.aux_scope = scope;
    TrainEngine engine(r);
    engine.model().weights().initialize(3);
    steps(engine, 2);
    for (int i = 0; i < 3; ++i) {
      const data::Batch batch = batch_of(engine.recipe(), 7);
      const Counts before = counts();
      step(engine, batch);
      const Counts after = counts();
      EXPECT_EQ(after.synchronizations - before.synchronizations, 1);
      EXPECT_EQ(after.allocations, before.allocations);
      EXPECT_EQ(after.unplanned_copies, before.unplanned_copies);
      EXPECT_GT(after.launches, before.launches + 50);
      EXPECT_EQ(after.graphs - before.graphs, 3);
      // Of each micro-batch, and of the update.
      EXPECT_EQ(after.uploads - before.uploads, 3);
      EXPECT_EQ(after.downloads - before.downloads, 3);
    }
  }
}

/// What the first of two data ranks measures and holds after some steps. Later ones must take no memory of a
/// device and make no copy that was not planned.
std::pair<std::vector<double>, std::map<std::string, std::string>> on_two_ranks(Recipe r) {
  std::pair<std::vector<double>, std::map<std::string, std::string>> result;
  r.phases.front().micro_batch = 1;
  run_ranks(2, [&](ThreadRank& self) {
    const RunRanks ranks(r, &self);
    TrainEngine engine(ranks.fitted(r), ranks);
    engine.model().weights().initialize(3);
    std::vector<double> measured = steps(engine, 3);
    Communicator& world = ranks.groups().world();
    world.barrier();
    const Counts before = counts();
    world.barrier();
    const std::vector<double> later = steps(engine, 2);
    world.barrier();
    const Counts after = counts();
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.unplanned_copies, before.unplanned_copies);
    world.barrier();
    measured.insert(measured.end(), later.begin(), later.end());
    auto state = state_of(engine);
    if (ranks.leads()) result = {std::move(measured), std::move(state)};
  });
  return result;
}

TEST_P(DeviceSteps, OnDataRanksHaveTheBitsOfTheCpu) {
  set_kernel_policy(KernelPolicy::strict);
  const Recipe r = recipe_of(GetParam());
  const auto cpu = on_two_ranks(r);
  for (const SimOrder& order : kSimOrders) {
    const InSimOrder in_order(order);
    const ComputeOn on(DeviceKind::sim);
    const int64_t launches = counts().launches;
    const auto sim = on_two_ranks(r);
    EXPECT_EQ(sim.first, cpu.first) << sim_order_text(order);
    EXPECT_EQ(sim.second, cpu.second) << sim_order_text(order);
    EXPECT_GT(counts().launches, launches + 500);
  }
}

/// Whether loss and gradients are finite; where they are not, the step changes nothing.
bool is_finite_step(TrainEngine& engine, const data::Batch& batch, RunObserver* observer = nullptr) {
  bool finite = true;
  const auto judge = [&](const StepStats& stats, const GradNorm& norm) {
    finite = norm.finite() && std::isfinite(stats.loss());
    if (!finite) fail("a value is not finite");
  };
  try {
    engine.step(batch, {.options = engine.options(0, 2), .lr = 0.01, .observer = observer, .judge = judge});
  } catch (const Error&) {
    EXPECT_FALSE(finite);
  }
  return finite;
}

TEST_P(DeviceSteps, ChangeNothingWhereAValueIsNotFinite) {
  const InSimOrder in_order({true, 5});
  const ComputeOn on(DeviceKind::sim);
  TrainEngine engine(recipe_of(GetParam()));
  WeightSet& weights = engine.model().weights();
  weights.initialize(3);
  steps(engine, 2);
  const data::Batch batch = batch_of(engine.recipe(), 9);
  int stopped = 0;
  for (int i = 0; i < weights.size(); ++i) {
    if (weights.master(i).numel() == 0 || weights.master(i).dtype() != DType::f32) continue;
    float& value = weights.master(i).as<float>()[0];
    const float before_it = value;
    value = std::numeric_limits<float>::quiet_NaN();
    const auto before = state_of(engine);
    const bool finite = is_finite_step(engine, batch);
    EXPECT_EQ(state_of(engine) == before, !finite) << weights.table()[i].name;
    stopped += !finite;
    weights.master(i).as<float>()[0] = before_it;
  }
  EXPECT_GT(stopped, weights.size() / 2);
}

/// Writes NaN to the first value that one execution of an op has made.
struct Spoiler final : RunObserver {
  void enters(StepPart) override {}
  bool wants_tensors() const override { return false; }
  void tensor(const std::string&, const Tensor&) override {}
  void ran(const OpRun& run) override {
    if (executions++ != at) return;
    op = run.op.name;
    const auto spoil = [](const Tensor& t) {
      if (!t.defined() || t.numel() == 0 || t.dtype() != DType::f32) return false;
      const float nan = std::numeric_limits<float>::quiet_NaN();
      sim_device().upload(t.data, &nan, sizeof(nan));
      return true;
    };
    for (const Tensor& t : run.call.out)
      if (run.direction == Direction::forward && !done) done = spoil(t);
    for (const GradSlot& g : run.call.d_in)
      if (run.direction != Direction::forward && !done && g.wanted()) done = spoil(g.tensor);
  }
  int64_t at = 0, executions = 0;
  bool done = false;
  std::string op;
};

/// Each execution of an op in turn.
TEST_P(DeviceSteps, ChangeNothingWhereAnOpMakesNaN) {
  const ComputeOn on(DeviceKind::sim);
  TrainEngine engine(recipe_of(GetParam()));
  engine.model().weights().initialize(3);
  steps(engine, 2);
  const data::Batch batch = batch_of(engine.recipe(), 9);
  int64_t executions = 1, spoiled = 0;
  for (int64_t at = 0; at < executions; ++at) {
    const auto before = state_of(engine);
    Spoiler spoiler;
    spoiler.at = at;
    const bool finite = is_finite_step(engine, batch, &spoiler);
    executions = spoiler.executions;
    if (!spoiler.done) continue;
    ++spoiled;
    // What a head says of its targets is read; of one that predicts further ahead nothing follows from it.
    const bool is_read_alone = spoiler.op == "head" && engine.recipe().model.mtp.depths > 0;
    EXPECT_TRUE(!finite || is_read_alone) << spoiler.op << ", execution " << at;
    EXPECT_EQ(state_of(engine) == before, !finite) << spoiler.op << ", execution " << at;
  }
  EXPECT_GT(spoiled, 50);
}

}  // namespace ingot::test::device_step_sim_test
