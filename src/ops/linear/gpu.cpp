// linear's kernels for GPUs, exact ones of f32 weights and those of bf16 on tensor cores: from tensors to the
// launches of product.cu and mma_product.cu.
#include <algorithm>

#include "device/gemm/library_choice.h"
#include "ops/activation/call.h"
#include "ops/gpu_product_operands.h"
#include "ops/linear/linear.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

template <class Product>
Product forward_product(const OpCall& call) {
  const Tensor &x = call.in[0], &w = call.in[1], &y = call.out[0];
  Product p;
  set_operands(p, x, w, y);
  p.m = x.dim(0), p.n = w.dim(0), p.k = x.dim(1);
  p.a_row = p.k, p.b_k = 1, p.b_column = p.k, p.c_row = p.n;
  p.bias = device_address<const float>(call.in[2]);
  return p;
}

template <class Product>
void forward(const OpCall& call) {
  launch(forward_product<Product>(call));
}

/// Of the pair linear_activation.
void activated_forward(const OpCall& call) {
  auto p = forward_product<GpuMmaProduct>(call);
  p.activated = device_address<bf16>(call.out[1]);
  p.activation = function_of(call.attr<ActivationAttr>().kind);
  launch(p);
}

template <class Product>
void backward_input(const OpCall& call) {
  const Tensor &w = call.in[1], &d_y = call.d_out[0];
  const GradSlot &d_x = call.d_in[0], &d_bias = call.d_in[2];
  if (d_x.wanted()) {
    Product p;
    set_operands(p, d_y, w, d_x.tensor);
    p.m = d_y.dim(0), p.n = w.dim(1), p.k = w.dim(0);
    p.a_row = p.k, p.b_k = p.n, p.c_row = p.n, p.accumulate = d_x.accumulate;
    launch(p);
  }
  if (d_bias.wanted()) INGOT_GPU_CALL(launch_column_sums)
  ({}, {d_y.data, d_y.dtype(), d_y.dim(0), d_y.dim(1), d_y.dim(1), kParameterChunkRows,
        device_address<float>(d_bias.tensor), d_bias.accumulate});
}

template <class Product>
void backward_weight(const OpCall& call) {
  const Tensor &x = call.in[0], &d_y = call.d_out[0];
  const GradSlot& d_w = call.d_in[1];
  Product p;
  set_operands(p, d_y, x, d_w.tensor);
  p.m = d_y.dim(1), p.n = x.dim(1), p.k = x.dim(0);
  p.a_row = 1, p.a_k = p.m, p.b_k = p.n, p.c_row = p.n, p.accumulate = d_w.accumulate;
  launch(p);
}

template <class Product>
constexpr GpuLaunches launches_of(const char* (*refuse)(const OpCall&)) {
  return {refuse, forward<Product>, backward_input<Product>, backward_weight<Product>};
}
/// Weights and outputs of f32, by rows of either type: those of a router in a run of bf16.
const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_weight_types(call, 1)) return reason;
  const auto is_other = [](const Tensor& t) { return t.defined() && t.dtype() != DType::f32; };
  const bool others = is_other(call.in[1]) || std::any_of(call.out.begin(), call.out.end(), is_other) ||
                      std::any_of(call.d_out.begin(), call.d_out.end(), is_other);
  return others ? "weights or outputs of another type than f32" : nullptr;
}
const char* refuse_mma(const OpCall& call) {
  return refuse_mma_types(call, 0, 1);
}
/// The library's products have bits of their own, and activate nothing.
const char* refuse_activated(const OpCall& call) {
  const auto& a = call.attr<ActivationAttr>();
  if (is_gated(a.kind) || a.kind == ActivationKind::soft_cap) return "a function of another kind";
  if (call.in[0].dtype() != DType::bf16 || call.out[0].dtype() != DType::bf16 || a.out != DType::bf16)
    return "rows or outputs of another type than bf16";
  return library_that_multiplies().empty() ? refuse_mma(call) : "cuBLASLt multiplies";
}
constexpr GpuLaunches kLaunches = launches_of<GpuProduct>(refuse);
constexpr GpuLaunches kMmaLaunches = on_tensor_cores(launches_of<GpuMmaProduct>(refuse_mma), 1);
constexpr GpuLaunches kActivatedLaunches = on_tensor_cores(
    {.refuse = refuse_activated, .forward = activated_forward, .pair = "linear_activation"}, 1);

}  // namespace

Kernel linear_gpu() {
  return emulated_kernel<linear_op, kLaunches>();
}
Kernel linear_mma_gpu() {
  return emulated_kernel<linear_op, kMmaLaunches>();
}
Kernel linear_activation_mma_gpu() {
  return emulated_kernel<linear_op, kActivatedLaunches>();
}

}  // namespace ingot
