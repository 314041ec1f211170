// capacity's kernel for GPUs: from tensors to the launches of capacity.cu.
#include "ops/capacity/capacity.h"
#include "ops/capacity/gpu_capacity.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"

namespace ingot {
namespace {

void forward(const OpCall& call) {
  const auto& a = call.attr<CapacityAttr>();
  const Tensor &probs = call.in[0], &ids = call.in[1];
  INGOT_GPU_CALL(launch_capacity)
  ({}, {ids.numel(), a.experts, expert_capacity(ids.dim(0), ids.dim(1), a.experts, a.factor),
        a.drop == DropRule::weight, device_address<const float>(probs), device_address<const int32_t>(ids),
        device_address<float>(call.out[0]), device_address<int32_t>(call.out[1]),
        device_address<float>(call.out[2])});
}

void backward_input(const OpCall& call) {
  const GradSlot& d_probs = call.d_in[0];
  if (!d_probs.wanted()) return;
  INGOT_GPU_CALL(launch_capacity_gradient)
  ({},
   {d_probs.tensor.numel(), device_address<const int32_t>(call.out[1]),
    device_address<const float>(call.d_out[0]), device_address<float>(d_probs.tensor), d_probs.accumulate});
}

constexpr GpuLaunches kLaunches{refuse_other_than_f32, forward, backward_input};

}  // namespace

Kernel capacity_gpu() {
  return emulated_kernel<capacity_op, kLaunches>();
}

}  // namespace ingot
