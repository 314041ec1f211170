// Kernels of a device: a tape on the device runs them, one on the CPU never does, and only those without the
// CPU's bits are in the device's fingerprint.
#include <gtest/gtest.h>

#include "device/gpu/emulator.h"
#include "device/sim/sim_device.h"
#include "ops/add/add.h"
#include "ops/quantize/quantize.h"
#include "ops/registry.h"
#include "support/support.h"
#include "tape/tape.h"
#include "tensor/host_copy.h"

namespace ingot::test::device_kernels_test {

std::atomic<int> calls = 0;

const char* accept(const OpCall&) {
  return nullptr;
}
const char* refuse_odd_widths(const OpCall& call) {
  return call.in[0].dim(1) % 2 == 0 ? nullptr : "the width is odd";
}

/// a + b by way of the host, as far as a device's kernel goes.
void forward(const OpCall& call) {
  ++calls;
  const HostCopy a(call.in[0]), b(call.in[1]);
  std::vector<float> y(static_cast<size_t>(call.out[0].numel()));
  for (size_t i = 0; i < y.size(); ++i) y[i] = a.as<float>()[i] + b.as<float>()[i];
  upload(Tensor::of(y.data(), call.out[0].shape()), call.out[0]);
}
void backward(const OpCall&) {}

/// The addition with a kernel on `sim` before those of the CPU, and no other there. As if it talked to other
/// ranks, so that the CPU's kernels cannot run on the device.
Op with_sim_kernel(const char* (*refuse)(const OpCall&), bool exact = true) {
  Op op = add_op();
  op.dry_run = [](const OpCall&, bool) {};
  std::erase_if(op.kernels, [](const Kernel& k) { return k.device != DeviceKind::cpu; });
  op.kernels.insert(op.kernels.begin(),
                    {"twin", refuse, forward, backward, nullptr, {}, DeviceKind::sim, exact});
  return op;
}

/// 1.5 + 1.5 on the device, in rows of this width.
float sum_on(DeviceKind device, const Op& op, int64_t width) {
  std::vector<float> x(static_cast<size_t>(3 * width), 1.5F);
  HeapArena arena(device_of(device));
  Tape tape(arena, {.device = device, .record = false});
  const Value a = tape.leaf(Tensor::of(x.data(), {3, width}));
  const Value sum = tape.apply(op, AddAttr{}, {a, a, Value()}).front();
  return HostCopy(sum.tensor()).as<float>()[x.size() - 1];
}

/// The error of the same; "" for none.
std::string error_on_sim(const Op& op, int64_t width) {
  try {
    sum_on(DeviceKind::sim, op, width);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

class DeviceKernels : public ::testing::Test {
 protected:
  DeviceKernels() { calls = 0; }
  ~DeviceKernels() override { set_kernel_policy(KernelPolicy::strict); }
};

TEST_F(DeviceKernels, RunOnTheirDeviceAndNowhereElse) {
  const Op op = with_sim_kernel(accept);
  EXPECT_EQ(sum_on(DeviceKind::sim, op, 8), 3.0F);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(sum_on(DeviceKind::cpu, op, 8), 3.0F);
  EXPECT_EQ(calls, 1);
}

TEST_F(DeviceKernels, WhatTheyRefuseRunsOnTheHostIfThePolicyAllowsIt) {
  const Op op = with_sim_kernel(refuse_odd_widths);
  EXPECT_EQ(error_on_sim(op, 8), "");
  EXPECT_NE(error_on_sim(op, 7).find(
                "op 'add' has no kernel on device 'sim' for this call (twin: the width is odd)"),
            std::string::npos)
      << error_on_sim(op, 7);
  EXPECT_EQ(calls, 1);
  set_kernel_policy(KernelPolicy::any);
  EXPECT_EQ(sum_on(DeviceKind::sim, op, 7), 3.0F);
  EXPECT_EQ(calls, 1);
  set_kernel_policy(KernelPolicy::reference);
  EXPECT_EQ(sum_on(DeviceKind::sim, op, 8), 3.0F);
  EXPECT_EQ(calls, 1);
}

TEST_F(DeviceKernels, OfTheCpuRunOnADeviceThatTakesHostCode) {
  const DeviceCounters& counters = sim_device().counters();
  const int64_t launches = counters.launches, downloads = counters.downloads;
  EXPECT_EQ(sum_on(DeviceKind::sim, add_op(), 8), 3.0F);
  EXPECT_EQ(counters.launches, launches + 1);
  EXPECT_EQ(counters.downloads, downloads + 1);  // the sum, by this test
}

TEST_F(DeviceKernels, OfTheCpuAreRefusedWhereEmulatedOnesRunAlone) {
  Op op = add_op();
  std::erase_if(op.kernels, [](const Kernel& k) { return k.device != DeviceKind::cpu; });
  set_emulation({.on = true, .seed = 1});
  EXPECT_EQ(error_on_sim(op, 8), "");
  set_emulation({.on = true, .seed = 1, .alone = true});
  EXPECT_NE(error_on_sim(op, 8).find("op 'add' has no kernel on device 'sim'"), std::string::npos);
  EXPECT_EQ(error_on_sim(add_op(), 8), "");
  set_kernel_policy(KernelPolicy::any);
  EXPECT_EQ(error_on_sim(op, 8), "");
  set_emulation({});
}

TEST_F(DeviceKernels, CountInTheFingerprintIfTheyDoNotHaveTheBitsOfTheCpu) {
  // What runs of earlier releases have recorded. Another value refuses to resume them.
  const std::string cpu = kernel_set_fingerprint(DType::bf16, DeviceKind::cpu);
  EXPECT_EQ(cpu, "3bd782095a17b111");
  EXPECT_EQ(kernel_set_fingerprint(DType::bf16, DeviceKind::sim), cpu);
  const Op plain = add_op(), exact = with_sim_kernel(accept), rounding = with_sim_kernel(accept, false);
  const auto of = [](const Op& op, DeviceKind device) {
    const Op* const list[] = {&op};
    return kernel_set_fingerprint(list, device);
  };
  for (const Op* op : {&plain, &exact, &rounding})
    EXPECT_EQ(of(*op, DeviceKind::cpu), of(plain, DeviceKind::cpu));
  EXPECT_EQ(of(exact, DeviceKind::sim), of(plain, DeviceKind::cpu));
  EXPECT_NE(of(rounding, DeviceKind::sim), of(plain, DeviceKind::cpu));
  Op of_a_format = plain;
  of_a_format.has_bits_of_a_format = true;
  const std::span<const Op* const> none;
  EXPECT_EQ(of(of_a_format, DeviceKind::cpu), kernel_set_fingerprint(none, DeviceKind::cpu));
  EXPECT_TRUE(quantize_op().has_bits_of_a_format && dequantize_op().has_bits_of_a_format);
}

}  // namespace ingot::test::device_kernels_test
