// Passes of micro-batches as graphs of the simulated device, with the CPU's kernels there: replays with other
// tokens, documents, routes and rates have the bits of passes that run each time.
#include <gtest/gtest.h>

#include <cstring>

#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/sequence/documents.h"
#include "support/device_steps.h"
#include "support/sim_orders.h"
#include "support/tape_pass.h"

namespace ingot::test::micro_graphs_sim_test {

class MicroGraphsOfModels : public AnyKernel, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, MicroGraphsOfModels,
                         ::testing::Values("llama clip", "mla clip", "moe", "moe loads", "moe-sigmoid own",
                                           "mtp-moe", "zaya", "zaya rounded"),
                         test_name_of);

TEST_P(MicroGraphsOfModels, HaveTheBitsOfTheCpu) {
  const Recipe r = recipe_of(GetParam());
  TrainEngine cpu(r);
  cpu.model().weights().initialize(3);
  const std::vector<double> expected = steps_of_other_documents(cpu);
  for (const SimOrder& order : kSimOrders) {
    const InSimOrder in_order(order);
    const ComputeOn on(DeviceKind::sim);
    TrainEngine sim(r);
    sim.model().weights().initialize(3);
    EXPECT_EQ(steps_of_other_documents(sim), expected) << sim_order_text(order);
    EXPECT_EQ(state_of(sim), state_of(cpu)) << sim_order_text(order);
    expect_graphs_of_other_documents(sim);
  }
}

/// Measured by steps between which the window changes and the memory of the passes is freed.
std::vector<double> changed_between(TrainEngine& engine) {
  std::vector<double> measured = steps(engine, 4);
  const auto more = [&](int count) {
    const std::vector<double> later = steps(engine, count);
    measured.insert(measured.end(), later.begin(), later.end());
  };
  engine.model().set_window(5);
  more(2);
  engine.release_memory();
  more(2);
  engine.evaluate(batch_of(engine.recipe(), 50));
  more(1);
  return measured;
}

TEST_P(MicroGraphsOfModels, AreCapturedAgainWhereSomethingElseChanges) {
  const Recipe r = recipe_of(GetParam());
  TrainEngine cpu(r);
  cpu.model().weights().initialize(3);
  const std::vector<double> expected = changed_between(cpu);
  const InSimOrder in_order({true, 2});
  const ComputeOn on(DeviceKind::sim);
  TrainEngine sim(r);
  sim.model().weights().initialize(3);
  EXPECT_EQ(changed_between(sim), expected);
  EXPECT_EQ(state_of(sim), state_of(cpu));
  EXPECT_EQ(sim.graph_counts().eager, 4) << "the first two steps";
  EXPECT_EQ(sim.graph_counts().captured, 6) << "at first, with another window, in other memory";
  EXPECT_EQ(sim.graph_counts().replayed, 14);
}

/// A step that an observer sees runs without graphs, which stay.
TEST_F(AnyKernel, PassesThatAreObservedAreNoGraphs) {
  struct Counter final : RunObserver {
    void enters(StepPart) override {}
    void ran(const OpRun&) override { ++ops; }
    bool wants_tensors() const override { return false; }
    void tensor(const std::string&, const Tensor&) override {}
    int64_t ops = 0;
  } counter;
  const ComputeOn on(DeviceKind::sim);
  TrainEngine sim(recipe_of("llama clip"));
  sim.model().weights().initialize(3);
  steps(sim, 3);
  EXPECT_EQ(sim.graph_counts().replayed, 2);
  sim.step(batch_of(sim.recipe(), 9), {.options = sim.options(0, 2), .lr = 0.01, .observer = &counter});
  EXPECT_GT(counter.ops, 20);
  EXPECT_EQ(sim.graph_counts().replayed, 0) << "the memory of the passes was planned anew";
}

/// Documents that a kernel takes with its launch are baked into a graph; a list of them is not.
TEST_F(AnyKernel, DocumentsInAListAreNotBakedIntoAGraph) {
  const int64_t rows = 24, words = document_words(most_documents(rows));
  const AttentionAttr attr{.heads = 2, .kv_heads = 1, .head_width = 4};
  const BatchLayout before{rows, {{0, 10}, {10, 14}}}, after{rows, {{0, 3}, {3, 1}, {4, 20}}};
  std::vector<float> qkv(static_cast<size_t>(rows * attr.packed_width())), o(static_cast<size_t>(rows * 8));
  for (size_t i = 0; i < qkv.size(); ++i) qkv[i] = static_cast<float>(i % 13) / 7 - 1;
  std::vector<int32_t> list(static_cast<size_t>(words));
  Device& device = device_of(DeviceKind::sim);
  HeapArena arena(device);
  const Block x = arena.allocate(std::ssize(qkv) * 4, "x"), d = arena.allocate(words * 4, "list"),
              y = arena.allocate(std::ssize(o) * 4, "y"), spare = arena.allocate(1 << 16, "spare");
  device.upload(x.data, qkv.data(), std::ssize(qkv) * 4);
  const auto put = [&](const BatchLayout& layout) {
    write_documents(layout, list);
    device.upload(d.data, list.data(), words * 4);
  };
  /// Attention of the rows, to y.
  const auto attend = [&](const BatchLayout* layout) {
    AttentionAttr own = attr;
    own.rows = layout;
    Tape tape(arena, {.device = DeviceKind::sim, .record = false});
    const Tensor in(x.data, {rows, attr.packed_width()}, DType::f32, DeviceKind::sim);
    const Value documents =
        layout == nullptr ? tape.leaf(Tensor(d.data, {words}, DType::i32, DeviceKind::sim)) : Value();
    const AttentionResult attended = attention(tape, own, tape.leaf(in), documents);
    const Tensor result = attended.o.tensor();
    device.launch({{{result.data, result.bytes(), false}, {y.data, result.bytes(), true}},
                   [bytes = static_cast<size_t>(result.bytes())](std::span<void* const> at) {
                     std::memcpy(at[1], at[0], bytes);
                   }});
  };
  const auto values = [&] {
    device.download(o.data(), y.data, std::ssize(o) * 4);
    return o;
  };
  const auto captured = [&](const BatchLayout* layout) {
    device.begin_capture();
    attend(layout);
    return device.end_capture();
  };
  arena.release(spare);
  put(before);
  attend(&after);
  const std::vector<float> expected = values();
  attend(nullptr);
  EXPECT_NE(values(), expected);
  const DeviceGraph listed = captured(nullptr), baked = captured(&before);
  put(after);
  device.replay(listed);
  EXPECT_EQ(values(), expected);
  device.replay(baked);
  EXPECT_NE(values(), expected);
  for (const Block& block : {x, d, y}) arena.release(block);
}

/// A leaf that lies on the host would be the same at each replay.
TEST_F(AnyKernel, ALeafOfTheHostIsRefusedInAGraph) {
  Device& device = device_of(DeviceKind::sim);
  HeapArena arena(device);
  const std::vector<float> host(16, 1.0F);
  const auto sum = [&] {
    Tape tape(arena, {.device = DeviceKind::sim, .record = false});
    const Value x = tape.leaf(Tensor::of(host.data(), {4, 4}));
    add(tape, DType::f32, x, x);
  };
  sum();
  device.begin_capture();
  try {
    sum();
    FAIL() << "a value of the host is in a graph";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("a capture that bakes values of the host into a kernel: of 'add'"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace ingot::test::micro_graphs_sim_test
