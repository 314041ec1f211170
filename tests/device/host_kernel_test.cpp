// Kernels that are host code, on the simulated device: they run in their stream's order, late and in any
// order beside other streams, and what goes wrong in one or beside one is told.
#include "device/host_kernel.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "support/sim_orders.h"
#include "support/support.h"
#include "tensor/buffer.h"

namespace ingot::test::host_kernel_test {

constexpr int64_t kBytes = 256;

void wait() {
  sim_device().synchronize(sim_device().record(StreamRole::compute));
}

/// Adds one to each byte.
void launch_increment(void* memory) {
  sim_device().launch({{{memory, kBytes, true}}, [](std::span<void* const> at) {
                         for (int64_t i = 0; i < kBytes; ++i) ++static_cast<char*>(at[0])[i];
                       }});
}

class HostKernels : public ::testing::TestWithParam<SimOrder> {
 protected:
  ~HostKernels() override {
    wait();
    sim_device().release(memory_, kBytes);
  }
  /// The byte that all are.
  int value() {
    std::vector<char> bytes(kBytes);
    sim_device().download(bytes.data(), memory_, kBytes);
    for (const char c : bytes) EXPECT_EQ(c, bytes[0]);
    return bytes[0];
  }
  const InSimOrder order_{GetParam()};
  void* const memory_ = sim_device().allocate(kBytes);
};
INSTANTIATE_TEST_SUITE_P(All, HostKernels, ::testing::ValuesIn(kSimOrders), sim_order_name);

TEST_P(HostKernels, RunInTheOrderOfTheirStream) {
  const std::vector<char> zeros(kBytes);
  sim_device().upload(memory_, zeros.data(), kBytes);
  for (int i = 0; i < 20; ++i) launch_increment(memory_);
  EXPECT_EQ(value(), 20);
}

TEST_P(HostKernels, BesideAnotherStreamNeedAWait) {
  const std::vector<char> zeros(kBytes);
  sim_device().upload(memory_, zeros.data(), kBytes, StreamRole::copy_in);
  EXPECT_THROW(launch_increment(memory_), InternalError);
  sim_device().wait(StreamRole::compute, sim_device().record(StreamRole::copy_in));
  launch_increment(memory_);
  EXPECT_EQ(value(), 1);
}

TEST_P(HostKernels, ThrowWhereTheHostWaitsAtTheLatest) {
  const std::vector<char> zeros(kBytes);
  sim_device().upload(memory_, zeros.data(), kBytes);
  EXPECT_THROW(
      {
        sim_device().launch({{{memory_, kBytes, true}}, [](std::span<void* const>) { fail("a bad id"); }});
        launch_increment(memory_);  // does nothing
        wait();
      },
      Error);
  EXPECT_EQ(value(), 0);
  launch_increment(memory_);
  EXPECT_EQ(value(), 1);
}

TEST_P(HostKernels, FindBuffersThatMoveBetweenHostAndDevice) {
  Buffer buffer(kBytes, Backing::memory, DeviceKind::sim);
  std::memset(buffer.data(), 5, kBytes);
  void* const there = buffer.on_device();
  launch_increment(there);
  EXPECT_EQ(static_cast<const char*>(buffer.data())[kBytes - 1], 6);
  static_cast<char*>(buffer.data())[0] = 8;
  EXPECT_EQ(buffer.on_device(), there);
  launch_increment(there);
  EXPECT_EQ(static_cast<const char*>(buffer.data())[0], 9);
  EXPECT_EQ(static_cast<const char*>(buffer.data())[1], 7);
}

TEST(HostKernelsDeathTest, HostCodeThatTouchesAMovedBufferEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Buffer buffer(kBytes, Backing::memory, DeviceKind::sim, "weights");
  auto* const values = static_cast<volatile char*>(buffer.data());
  buffer.on_device();
  EXPECT_DEATH(
      static_cast<void>(values[7]),
      "host code touched memory whose values are on device 'sim': byte 7 of 256 of category 'weights'");
}

}  // namespace ingot::test::host_kernel_test
