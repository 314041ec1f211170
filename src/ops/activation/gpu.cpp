// activation's kernel for GPUs: from tensors to the launches of activation.cu.
#include "ops/activation/activation.h"
#include "ops/activation/call.h"
#include "ops/activation/gpu_activation.h"
#include "ops/gpu_registry.h"

namespace ingot {
namespace {

/// Where the number of rows that hold data is; nullptr: all of them do.
const int32_t* end_of_rows(const OpCall& call) {
  const Tensor& offsets = call.in[2];
  return offsets.defined() ? device_address<const int32_t>(offsets) + offsets.numel() - 1 : nullptr;
}

void forward(const OpCall& call) {
  INGOT_GPU_CALL(launch_activation_forward)
  ({}, activation_forward_rows(call), call.out[0].dim(0), end_of_rows(call));
}

void backward(const OpCall& call) {
  INGOT_GPU_CALL(launch_activation_backward)
  ({}, activation_backward_rows(call), call.d_out[0].dim(0), end_of_rows(call));
}

constexpr GpuLaunches kLaunches{refuse_activation, forward, backward};

}  // namespace

Kernel activation_gpu() {
  return emulated_kernel<activation_op, kLaunches>();
}

}  // namespace ingot
