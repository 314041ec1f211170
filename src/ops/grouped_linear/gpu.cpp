// grouped_linear's kernel for GPUs, f32: from tensors to the launches of product.cu.
#include "device/gemm/gpu_product.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/grouped_linear/grouped_linear.h"

namespace ingot {
namespace {

/// Whose groups are the call's experts.
GpuGroupedProduct of_experts(const OpCall& call, int64_t stride) {
  const Tensor& offsets = call.in[2];
  return {{}, device_address<const int32_t>(offsets), offsets.numel() - 1, stride};
}

void forward(const OpCall& call) {
  const Tensor &x = call.in[0], &w = call.in[1], &y = call.out[0];
  GpuGroupedProduct g = of_experts(call, w.dim(1) * w.dim(2));
  GpuProduct& p = g.product;
  p.m = x.dim(0), p.n = w.dim(1), p.k = w.dim(2);
  p.a = device_address<const float>(x), p.a_row = p.k;
  p.b = device_address<const float>(w), p.b_k = 1, p.b_column = p.k;
  p.c = device_address<float>(y), p.c_row = p.n;
  INGOT_GPU_CALL(launch_grouped_rows)({}, g);
}

void backward_input(const OpCall& call) {
  const Tensor &w = call.in[1], &d_y = call.d_out[0];
  const GradSlot& d_x = call.d_in[0];
  if (!d_x.wanted()) return;
  GpuGroupedProduct g = of_experts(call, w.dim(1) * w.dim(2));
  GpuProduct& p = g.product;
  p.m = d_y.dim(0), p.n = w.dim(2), p.k = w.dim(1);
  p.a = device_address<const float>(d_y), p.a_row = p.k;
  p.b = device_address<const float>(w), p.b_k = p.n;
  p.c = device_address<float>(d_x.tensor), p.c_row = p.n, p.accumulate = d_x.accumulate;
  INGOT_GPU_CALL(launch_grouped_rows)({}, g);
}

void backward_weight(const OpCall& call) {
  const Tensor &x = call.in[0], &d_y = call.d_out[0];
  const GradSlot& d_w = call.d_in[1];
  GpuGroupedProduct g = of_experts(call, d_w.tensor.dim(1) * d_w.tensor.dim(2));
  GpuProduct& p = g.product;
  p.m = d_w.tensor.dim(1), p.n = d_w.tensor.dim(2);
  p.a = device_address<const float>(d_y), p.a_row = 1, p.a_k = p.m;
  p.b = device_address<const float>(x), p.b_k = p.n;
  p.c = device_address<float>(d_w.tensor), p.c_row = p.n, p.accumulate = d_w.accumulate;
  INGOT_GPU_CALL(launch_grouped_depth)({}, g);
}

constexpr GpuLaunches kLaunches{refuse_other_than_f32, forward, backward_input, backward_weight};

}  // namespace

Kernel grouped_linear_gpu() {
  return emulated_kernel<grouped_linear_op, kLaunches>();
}

}  // namespace ingot
