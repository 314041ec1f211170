// grouped_linear's kernels for GPUs, exact ones of f32 and those of bf16 on tensor cores: from tensors to the
// launches of product.cu and mma_product.cu.
#include "ops/gpu_product_operands.h"
#include "ops/grouped_linear/grouped_linear.h"

namespace ingot {
namespace {

/// Whose groups are the call's experts.
template <class Product>
GpuGroupedProductOf<Product> of_experts(const OpCall& call, int64_t stride) {
  const Tensor& offsets = call.in[2];
  return {{}, device_address<const int32_t>(offsets), offsets.numel() - 1, stride};
}

template <class Product>
void forward(const OpCall& call) {
  const Tensor &x = call.in[0], &w = call.in[1], &y = call.out[0];
  auto g = of_experts<Product>(call, w.dim(1) * w.dim(2));
  Product& p = g.product;
  set_operands(p, x, w, y);
  p.m = x.dim(0), p.n = w.dim(1), p.k = w.dim(2);
  p.a_row = p.k, p.b_k = 1, p.b_column = p.k, p.c_row = p.n;
  launch_rows(g);
}

template <class Product>
void backward_input(const OpCall& call) {
  const Tensor &w = call.in[1], &d_y = call.d_out[0];
  const GradSlot& d_x = call.d_in[0];
  if (!d_x.wanted()) return;
  auto g = of_experts<Product>(call, w.dim(1) * w.dim(2));
  Product& p = g.product;
  set_operands(p, d_y, w, d_x.tensor);
  p.m = d_y.dim(0), p.n = w.dim(2), p.k = w.dim(1);
  p.a_row = p.k, p.b_k = p.n, p.c_row = p.n, p.accumulate = d_x.accumulate;
  launch_rows(g);
}

template <class Product>
void backward_weight(const OpCall& call) {
  const Tensor &x = call.in[0], &d_y = call.d_out[0];
  const GradSlot& d_w = call.d_in[1];
  auto g = of_experts<Product>(call, d_w.tensor.dim(1) * d_w.tensor.dim(2));
  Product& p = g.product;
  set_operands(p, d_y, x, d_w.tensor);
  p.m = d_w.tensor.dim(1), p.n = d_w.tensor.dim(2), p.k = x.dim(0);
  p.a_row = 1, p.a_k = p.m, p.b_k = p.n, p.c_row = p.n, p.accumulate = d_w.accumulate;
  launch_depth(g);
}

template <class Product>
constexpr GpuLaunches launches_of(const char* (*refuse)(const OpCall&)) {
  return {refuse, forward<Product>, backward_input<Product>, backward_weight<Product>};
}
const char* refuse_mma(const OpCall& call) {
  return refuse_mma_types(call, 0, 1);
}
constexpr GpuLaunches kLaunches = launches_of<GpuProduct>(refuse_other_than_f32);
constexpr GpuLaunches kMmaLaunches = on_tensor_cores(launches_of<GpuMmaProduct>(refuse_mma), 1);

}  // namespace

Kernel grouped_linear_gpu() {
  return emulated_kernel<grouped_linear_op, kLaunches>();
}
Kernel grouped_linear_mma_gpu() {
  return emulated_kernel<grouped_linear_op, kMmaLaunches>();
}

}  // namespace ingot
