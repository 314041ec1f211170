// The device that tests compute on, and the orders in which they let the work of the simulated device run.
#pragma once
#include <gtest/gtest.h>

#include "device/sim/sim_device.h"

namespace ingot::test {

/// At once, and late with three seeds.
inline const SimOrder kSimOrders[] = {{}, {true, 1}, {true, 2}, {true, 3}};

inline std::string sim_order_text(const SimOrder& order) {
  return order.late ? "async" + std::to_string(order.seed) : "ordered";
}
inline std::string sim_order_name(const ::testing::TestParamInfo<SimOrder>& info) {
  return sim_order_text(info.param);
}

/// The device of the process while this lives.
class ComputeOn {
 public:
  explicit ComputeOn(DeviceKind kind) { set_compute_device(kind); }
  ~ComputeOn() { set_compute_device(DeviceKind::cpu); }
  ComputeOn(const ComputeOn&) = delete;
  ComputeOn& operator=(const ComputeOn&) = delete;
};

/// The order of the process while this lives.
class InSimOrder {
 public:
  explicit InSimOrder(const SimOrder& order) { set_sim_order(order); }
  ~InSimOrder() { set_sim_order({}); }
  InSimOrder(const InSimOrder&) = delete;
  InSimOrder& operator=(const InSimOrder&) = delete;
};

}  // namespace ingot::test
