// linear's kernel for GPUs, f32: from tensors to the launches of product.cu.
#include "device/gemm/gpu_product.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/linear/linear.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

void forward(const OpCall& call) {
  const Tensor &x = call.in[0], &w = call.in[1], &y = call.out[0];
  GpuProduct p;
  p.m = x.dim(0), p.n = w.dim(0), p.k = x.dim(1);
  p.a = device_address<const float>(x), p.a_row = p.k;
  p.b = device_address<const float>(w), p.b_k = 1, p.b_column = p.k;
  p.c = device_address<float>(y), p.c_row = p.n;
  p.bias = device_address<const float>(call.in[2]);
  INGOT_GPU_CALL(launch_product)({}, p);
}

void backward_input(const OpCall& call) {
  const Tensor &w = call.in[1], &d_y = call.d_out[0];
  const GradSlot &d_x = call.d_in[0], &d_bias = call.d_in[2];
  if (d_x.wanted()) {
    GpuProduct p;
    p.m = d_y.dim(0), p.n = w.dim(1), p.k = w.dim(0);
    p.a = device_address<const float>(d_y), p.a_row = p.k;
    p.b = device_address<const float>(w), p.b_k = p.n;
    p.c = device_address<float>(d_x.tensor), p.c_row = p.n, p.accumulate = d_x.accumulate;
    INGOT_GPU_CALL(launch_product)({}, p);
  }
  if (d_bias.wanted()) INGOT_GPU_CALL(launch_column_sums)
  ({}, {device_address<const float>(d_y), d_y.dim(0), d_y.dim(1), d_y.dim(1), kParameterChunkRows,
        device_address<float>(d_bias.tensor), d_bias.accumulate});
}

void backward_weight(const OpCall& call) {
  const Tensor &x = call.in[0], &d_y = call.d_out[0];
  const GradSlot& d_w = call.d_in[1];
  GpuProduct p;
  p.m = d_y.dim(1), p.n = x.dim(1), p.k = x.dim(0);
  p.a = device_address<const float>(d_y), p.a_row = 1, p.a_k = p.m;
  p.b = device_address<const float>(x), p.b_k = p.n;
  p.c = device_address<float>(d_w.tensor), p.c_row = p.n, p.accumulate = d_w.accumulate;
  INGOT_GPU_CALL(launch_product)({}, p);
}

constexpr GpuLaunches kLaunches{refuse_other_than_f32, forward, backward_input, backward_weight};

}  // namespace

Kernel linear_gpu() {
  return emulated_kernel<linear_op, kLaunches>();
}

}  // namespace ingot
