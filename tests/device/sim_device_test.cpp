// device/sim: bytes cross by copies only, and whatever touches the device's memory on the host ends the
// program, which says what it touched.
#include "device/sim/sim_device.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "ops/add/add.h"
#include "support/support.h"
#include "tape/backward.h"
#include "tensor/host_copy.h"

namespace ingot::test::sim_device_test {

/// Memory of the device for as long as this lives.
class SimBlock {
 public:
  explicit SimBlock(int64_t bytes) : data_(sim_device().allocate(bytes)), bytes_(bytes) {}
  ~SimBlock() { sim_device().release(data_, bytes_); }
  SimBlock(const SimBlock&) = delete;
  SimBlock& operator=(const SimBlock&) = delete;
  float* data() const { return static_cast<float*>(data_); }

 private:
  void* data_;
  int64_t bytes_;
};

Tensor on_sim(float* data, const Shape& shape) {
  return Tensor(data, shape, DType::f32, DeviceKind::sim);
}

TEST(SimDevice, BytesGoThereAndBackAndAreCounted) {
  const DeviceCounters& counters = sim_device().counters();
  const int64_t up = counters.uploads, up_bytes = counters.uploaded_bytes, down = counters.downloads,
                allocations = counters.allocations;
  std::vector<float> values(1000), part(10);
  std::iota(values.begin(), values.end(), 0.0F);
  const SimBlock block(4000);
  upload(Tensor::of(values.data(), {1000}), on_sim(block.data(), {1000}));
  const HostCopy back(on_sim(block.data(), {1000}));
  EXPECT_EQ(std::vector<float>(back.as<float>(), back.as<float>() + 1000), values);
  const HostCopy slice(on_sim(block.data(), {1000}).slice(500, 510));
  EXPECT_EQ(slice.as<float>()[3], 503);
  EXPECT_EQ(counters.uploads, up + 1);
  EXPECT_EQ(counters.uploaded_bytes, up_bytes + 4000);
  EXPECT_EQ(counters.downloads, down + 2);
  EXPECT_EQ(counters.allocations, allocations + 1);
}

TEST(SimDevice, NewMemoryIsNaN) {
  const SimBlock block(64);
  const HostCopy values(on_sim(block.data(), {16}));
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(values.as<float>()[i]));
}

TEST(SimDevice, NoBytesAreNoMemory) {
  EXPECT_EQ(sim_device().allocate(0), nullptr);
  sim_device().release(nullptr, 0);
  sim_device().upload(nullptr, nullptr, 0);
  const HostCopy empty(Tensor(nullptr, {0, 3}, DType::f32, DeviceKind::cpu));
  EXPECT_FALSE(empty.tensor().defined());
}

TEST(SimDevice, CopiesBeyondABlockAreRefused) {
  const SimBlock block(64), other(64);
  std::array<char, 256> host{};
  EXPECT_THROW(sim_device().upload(block.data(), host.data(), 65), InternalError);
  EXPECT_THROW(sim_device().download(host.data(), block.data() + 15, 8), InternalError);
  EXPECT_THROW(sim_device().download(host.data(), host.data(), 8), InternalError);
  float* released = nullptr;
  {
    const SimBlock short_lived(64);
    released = short_lived.data();
  }
  EXPECT_THROW(sim_device().download(host.data(), released, 8), InternalError);
}

TEST(SimDevice, TensorsAreNotHandedToHostCode) {
  const SimBlock block(64);
  EXPECT_THROW(on_sim(block.data(), {16}).as<float>(), InternalError);
}

/// The addition, as if it talked to other ranks: the device has no kernel of it.
const Op& talking_add() {
  static const Op op = [] {
    Op copy = add_op();
    copy.dry_run = [](const OpCall&, bool) {};
    std::erase_if(copy.kernels, [](const Kernel& k) { return k.device != DeviceKind::cpu; });
    return copy;
  }();
  return op;
}

/// A tape of one addition on the device, whose sum the function gets.
template <class Function>
void with_sum(Function use, const Op& op = add_op()) {
  set_kernel_policy(KernelPolicy::any);
  std::vector<float> x(24, 1.5F);
  HeapArena arena(sim_device());
  Tape tape(arena, {.device = DeviceKind::sim});
  const Value a = tape.leaf(Tensor::of(x.data(), {3, 8}), true);
  use(tape, a, tape.apply(op, AddAttr{}, {a, a, Value()}).front());
  set_kernel_policy(KernelPolicy::strict);
}

TEST(SimDeviceDeathTest, AHostReadNamesTensorOpAndSlot) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(with_sum([](Tape&, const Value&, const Value& sum) {
                 volatile const float* at = static_cast<const float*>(sum.tensor().data);
                 [[maybe_unused]] const float read = at[2];
               }),
               "host code touched memory of device 'sim': byte 8 of 96, '.+' of op 'add'");
}

TEST(SimDeviceDeathTest, AHostWriteToReleasedMemoryIsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        float* released = nullptr;
        {
          const SimBlock short_lived(64);
          released = short_lived.data();
        }
        *const_cast<volatile float*>(released) = 1;
      },
      "host code touched memory of device 'sim'");
}

TEST(SimDevice, OpsRunThereOrOnTheHostWithCopies) {
  const auto use = [](Tape& tape, const Value& a, const Value& sum) {
    EXPECT_EQ(sum.tensor().device, DeviceKind::sim);
    EXPECT_EQ(HostCopy(sum.tensor()).as<float>()[7], 3.0F);
    std::vector<float> d(24, 2.0F);
    tape.seed(sum, Tensor::of(d.data(), {3, 8}));
    Backward(tape).run();
    const Tensor gradient = tape.gradient(a);
    EXPECT_EQ(gradient.device, DeviceKind::sim);
    EXPECT_EQ(HostCopy(gradient).as<float>()[7], 4.0F);
  };
  const DeviceCounters& counters = sim_device().counters();
  const int64_t launches = counters.launches;
  with_sum(use, talking_add());
  EXPECT_EQ(counters.launches, launches);
  with_sum(use);
  EXPECT_EQ(counters.launches, launches + 2);
}

TEST(SimDevice, StrictRefusesWhatTheDevicesOwnKernelDoesNotTake) {
  Op op = talking_add();
  op.kernels.insert(
      op.kernels.begin(),
      {.name = "sim", .refuse = [](const OpCall&) { return "rows of 8"; }, .device = DeviceKind::sim});
  set_kernel_policy(KernelPolicy::strict);
  std::vector<float> x(8, 1.0F);
  HeapArena arena(sim_device());
  Tape tape(arena, {.device = DeviceKind::sim});
  const Value a = tape.leaf(Tensor::of(x.data(), {1, 8}));
  try {
    tape.apply(op, AddAttr{}, {a, a, Value()});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(
        std::string(e.what()).find("op 'add' has no kernel on device 'sim' for this call (sim: rows of 8"),
        std::string::npos)
        << e.what();
  }
  EXPECT_NO_THROW(tape.apply(talking_add(), AddAttr{}, {a, a, Value()})) << "it has none there";
}

TEST(SimDevice, ATapeTakesNoTensorOfAnotherDevice) {
  const SimBlock block(64);
  HeapArena arena;
  Tape tape(arena, {});
  EXPECT_THROW(tape.leaf(on_sim(block.data(), {16})), InternalError);
}

TEST(SimDevice, WhatWasNotBuiltIsRefusedByName) {
  EXPECT_THROW(device_of(DeviceKind::hip), Error);
  EXPECT_THROW(set_compute_device(DeviceKind::hip), Error);
  EXPECT_THROW(set_compute_device(DeviceKind::null), Error);
  EXPECT_EQ(compute_device(), DeviceKind::cpu);
}

}  // namespace ingot::test::sim_device_test
