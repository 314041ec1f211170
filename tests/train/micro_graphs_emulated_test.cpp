// Passes of micro-batches as graphs of the simulated device, with the emulated kernels of GPUs alone: replays
// with other tokens, documents, routes and rates have the CPU's bits, whatever the order of threads and work.
#include <gtest/gtest.h>

#include "device/gpu/emulator.h"
#include "support/device_steps.h"
#include "support/sim_orders.h"
#include "support/tape_pass.h"

namespace ingot::test::micro_graphs_emulated_test {

class EmulatedGraphs : public AnyKernel, public ::testing::WithParamInterface<std::string> {
 protected:
  ~EmulatedGraphs() override { set_emulation({}); }
};
INSTANTIATE_TEST_SUITE_P(All, EmulatedGraphs, ::testing::Values("llama clip"), test_name_of);

TEST_P(EmulatedGraphs, HaveTheBitsOfTheCpu) {
  set_kernel_policy(KernelPolicy::strict);
  const Recipe r = recipe_of(GetParam());
  TrainEngine cpu(r);
  cpu.model().weights().initialize(3);
  const std::vector<double> expected = steps_of_other_documents(cpu);
  for (const SimOrder& order : {kSimOrders[0], kSimOrders[3]}) {  // all: sim.DeviceSteps
    set_emulation({.on = true, .seed = order.seed + 3, .alone = true});
    const InSimOrder in_order(order);
    const ComputeOn on(DeviceKind::sim);
    TrainEngine sim(r);
    sim.model().weights().initialize(3);
    EXPECT_EQ(steps_of_other_documents(sim), expected) << sim_order_text(order);
    EXPECT_EQ(state_of(sim), state_of(cpu)) << sim_order_text(order);
    expect_graphs_of_other_documents(sim);
    set_emulation({});
  }
}

}  // namespace ingot::test::micro_graphs_emulated_test
