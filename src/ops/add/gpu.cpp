// add's kernel for GPUs: from tensors to the launches of add.cu.
#include "device/simd/gpu_array.h"
#include "ops/add/add.h"
#include "ops/add/call.h"
#include "ops/add/gpu_add.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

void forward(const OpCall& call) {
  INGOT_GPU_CALL(launch_add_forward)({}, add_forward_rows(call));
}

void copy_to(const GradSlot& to, const Tensor& from) {
  if (to.wanted()) INGOT_GPU_CALL(launch_array_copy)
  ({}, {to.tensor.data, to.tensor.dtype(), from.data, from.dtype(), from.numel(), to.accumulate});
}

void backward(const OpCall& call) {
  const Tensor& d_y = call.d_out[0];
  copy_to(call.d_in[0], d_y);
  if (!call.in[2].defined()) return copy_to(call.d_in[1], d_y);
  if (const AddRows p = add_gated_rows(call); p.d_b != nullptr)
    INGOT_GPU_CALL(launch_add_gated_gradient)({}, p);
  if (const AddRows p = add_gate_rows(call); p.d_gate != nullptr)
    INGOT_GPU_CALL(launch_add_gate_gradient)({}, p, kParameterChunkRows);
}

constexpr GpuLaunches kLaunches{refuse_other_floats, forward, backward};

}  // namespace

Kernel add_gpu() {
  return emulated_kernel<add_op, kLaunches>();
}

}  // namespace ingot
