// Graphs of the simulated device: a replay reads what memory holds then, and what would be baked into a
// graph, or has gone stale since its capture, is found and named.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "device/host_kernel.h"
#include "support/sim_orders.h"
#include "support/support.h"
#include "tensor/arena.h"

namespace ingot::test::sim_graphs_test {

constexpr int64_t kCount = 16;
constexpr int64_t kBytes = kCount * sizeof(float);

/// y += x * step, where the step is in memory or, as a mistake, in the kernel.
void launch_sum(void* y, void* x, void* step, float baked = 0) {
  sim_device().launch({{{y, kBytes, true}, {x, kBytes, false}, {step, sizeof(float), false}},
                       [baked](std::span<void* const> at) {
                         const float factor = baked != 0 ? baked : *static_cast<const float*>(at[2]);
                         for (int64_t i = 0; i < kCount; ++i)
                           static_cast<float*>(at[0])[i] += static_cast<const float*>(at[1])[i] * factor;
                       }});
}

class SimGraphs : public ::testing::TestWithParam<SimOrder> {
 protected:
  SimGraphs() {
    x_ = arena_.allocate(kBytes, "x"), y_ = arena_.allocate(kBytes, "y"), step_ = arena_.allocate(64, "step");
    fill(y_, 0);
  }
  ~SimGraphs() override {
    for (const Block& block : {x_, y_, step_}) arena_.release(block);
  }
  void fill(const Block& block, float value) {
    const std::vector<float> values(static_cast<size_t>(block.bytes) / sizeof(float), value);
    sim_device().upload(block.data, values.data(), block.bytes);
  }
  float y() {
    std::vector<float> values(kCount);
    sim_device().download(values.data(), y_.data, kBytes);
    return values.back();
  }
  DeviceGraph captured(float baked = 0) {
    sim_device().begin_capture();
    launch_sum(y_.data, x_.data, step_.data, baked);
    launch_sum(y_.data, x_.data, step_.data, baked);
    return sim_device().end_capture();
  }
  /// The sum of three replays, each with another x and step.
  float replayed(const DeviceGraph& graph) {
    fill(y_, 0);
    for (int i = 1; i <= 3; ++i) {
      fill(x_, static_cast<float>(i));
      fill(step_, static_cast<float>(10 * i));
      sim_device().replay(graph);
    }
    return y();
  }
  /// The message of the InternalError that the function ends with; "" for none.
  static std::string fault(const std::function<void()>& run) {
    try {
      run();
    } catch (const InternalError& e) {
      return e.what();
    }
    return {};
  }

  const InSimOrder order_{GetParam()};
  HeapArena arena_{sim_device()};
  Block x_, y_, step_;
};
INSTANTIATE_TEST_SUITE_P(All, SimGraphs, ::testing::ValuesIn(kSimOrders), sim_order_name);

TEST_P(SimGraphs, ReplaysReadWhatMemoryHoldsThen) {
  const DeviceGraph graph = captured();
  EXPECT_EQ(y(), 0) << "a capture runs nothing";
  const int64_t launches = sim_device().counters().graph_launches;
  EXPECT_EQ(replayed(graph), 2 * (1 * 10 + 2 * 20 + 3 * 30));
  EXPECT_EQ(sim_device().counters().graph_launches, launches + 3);
}

TEST_P(SimGraphs, AValueThatAKernelCarriesIsBakedIn) {
  EXPECT_NE(replayed(captured(10)), 2 * (1 * 10 + 2 * 20 + 3 * 30));
}

TEST_P(SimGraphs, ACaptureRefusesWhatWouldBeAnotherAtEachReplay) {
  std::vector<float> host(kCount);
  Block kept = arena_.allocate(kBytes, "spare");
  arena_.release(kept);
  const std::function<void()> mistakes[] = {
      [&] { fill(x_, 1); },
      [&] { sim_device().begin_download(host.data(), y_.data, kBytes, StreamRole::compute); },
      [&] { sim_device().record(StreamRole::compute); },
      [&] { arena_.allocate(1 << 12, "late"); },
      [&] { arena_.release(x_); },
      [&] {
        sim_device().launch({{}, [](std::span<void* const>) {}, "sum"});
      },
      [&] {
        kept = arena_.allocate(kBytes, "kept");
        sim_device().end_capture();
      }};
  const char* const messages[] = {
      "a capture that bakes bytes of the host into the graph: byte 0 of 64 of category 'x'",
      "a capture that copies to the host: byte 0 of 64 of category 'y'",
      "a capture that records an event",
      "a capture that allocates memory",
      "a capture that gives a buffer back to an arena that it did not take: byte 0 of 64 of category 'x'",
      "a capture that bakes values of the host into a kernel: of 'sum'",
      "a capture that keeps a buffer of an arena"};
  for (size_t i = 0; i < std::size(messages); ++i) {
    sim_device().begin_capture();
    const std::string message = fault(mistakes[i]);
    EXPECT_NE(message.find(messages[i]), std::string::npos) << message;
    EXPECT_NE(fault([] { sim_device().end_capture(); }), "") << "the capture is over";
  }
  arena_.release(kept);
}

/// Adds x to y by way of two buffers of the arena, of which the second is where the first was.
void add_through_buffers(PlannedArena& arena, void* x, void* y) {
  arena.restart();
  const auto copy = [](void* from, void* to, bool adds) {
    sim_device().launch({{{from, kBytes, false}, {to, kBytes, true}}, [adds](std::span<void* const> at) {
                           for (int64_t i = 0; i < kCount; ++i) {
                             float& element = static_cast<float*>(at[1])[i];
                             element = static_cast<const float*>(at[0])[i] + (adds ? element : 0.0F);
                           }
                         }});
  };
  const Block first = arena.allocate(kBytes, "first");
  copy(x, first.data, false);
  const Block second = arena.allocate(kBytes, "second");
  copy(first.data, second.data, false);
  arena.release(first);
  copy(second.data, y, true);
  arena.release(second);
}

TEST_P(SimGraphs, AnArenasBuffersAreAGraphsWhileItRuns) {
  CountingArena counting;
  const Block a = counting.allocate(kBytes, "first"), b = counting.allocate(kBytes, "second");
  counting.release(a), counting.release(b);
  PlannedArena arena(plan_memory(counting.allocations()), sim_device());
  fill(x_, 1);
  add_through_buffers(arena, x_.data, y_.data);
  sim_device().begin_capture();
  add_through_buffers(arena, x_.data, y_.data);
  const DeviceGraph graph = sim_device().end_capture();
  EXPECT_EQ(y(), 1) << "a capture runs nothing";
  sim_device().replay(graph);
  fill(x_, 10);
  sim_device().replay(graph);
  EXPECT_EQ(y(), 1 + 1 + 10);
  add_through_buffers(arena, x_.data, y_.data);  // others may use the memory between replays
  sim_device().replay(graph);
  EXPECT_EQ(y(), 1 + 1 + 3 * 10);
  arena.restart();
  const Block held = arena.allocate(kBytes, "held");
  const std::string stale = fault([&] { sim_device().replay(graph); });
  EXPECT_NE(stale.find("a graph would use memory of device 'sim' that has been given to something else since "
                       "it was captured: byte 0 of 64 of category 'held'. Capture it again"),
            std::string::npos)
      << stale;
  arena.release(held);
  sim_device().replay(graph);
  EXPECT_EQ(y(), 1 + 1 + 4 * 10);
}

TEST_P(SimGraphs, AStaleSlotIsFoundAndNamed) {
  const DeviceGraph graph = captured();
  fill(x_, 1), fill(step_, 1);
  sim_device().replay(graph);
  arena_.release(x_);
  const std::string given_back = fault([&] { sim_device().replay(graph); });
  EXPECT_NE(given_back.find("memory of device 'sim' that was given back"), std::string::npos) << given_back;
  const Block other = arena_.allocate(kBytes, "other");
  ASSERT_EQ(other.data, x_.data);
  const std::string stale = fault([&] { sim_device().replay(graph); });
  EXPECT_NE(
      stale.find("a graph would use memory of device 'sim' that has been given to something else since it "
                 "was captured: byte 0 of 64 of category 'other'"),
      std::string::npos)
      << stale;
  x_ = other;
}

}  // namespace ingot::test::sim_graphs_test
