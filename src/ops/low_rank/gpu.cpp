// low_rank's kernels for GPUs, exact ones of f32 and those of bf16 on tensor cores: from tensors to the
// launches of product.cu and mma_product.cu, one a block, and low_rank.cu.
#include "device/simd/gpu_array.h"
#include "ops/gpu_product_operands.h"
#include "ops/low_rank/gpu_low_rank.h"
#include "ops/low_rank/low_rank.h"

namespace ingot {
namespace {

/// slot (+)= the call's scale times `from`.
void put_scaled(const OpCall& call, const GradSlot& slot, const Tensor& from) {
  INGOT_GPU_CALL(launch_scaled)
  ({}, {slot.tensor.data, slot.tensor.dtype(), from.data, from.dtype(),
        static_cast<float>(call.attr<LowRankAttr>().scale), from.numel(), slot.accumulate});
}

void copy(const GradSlot& to, const Tensor& from) {
  INGOT_GPU_CALL(launch_array_copy)
  ({}, {to.tensor.data, to.tensor.dtype(), from.data, from.dtype(), from.numel(), to.accumulate});
}

/// The call's scratch, in f32, as a tensor of this shape.
Tensor sums_like(const OpCall& call, const Tensor& t) {
  return {call.scratch, t.shape(), DType::f32};
}
/// Elements from `first` on, as an operand.
Tensor from_element(const Tensor& t, int64_t first) {
  Tensor part = t;
  part.data = static_cast<char*>(t.data) + first * t.meta.element_bytes();
  return part;
}

template <class Product>
void forward(const OpCall& call) {
  const Tensor &base = call.in[0], &h = call.in[1], &b = call.in[2], &y = call.out[0];
  const int64_t rank = b.dim(1);
  const Tensor scaled_h = sums_like(call, h);
  put_scaled(call, {scaled_h, false}, h);
  copy({y, false}, base);
  each_low_rank_block(call.attr<LowRankAttr>(), [&](int32_t block, int64_t row, int64_t rows) {
    Product p;
    set_operands(p, from_element(scaled_h, block * rank), from_element(b, row * rank), from_element(y, row));
    p.m = base.dim(0), p.n = rows, p.k = rank;
    p.a_row = h.dim(1), p.b_k = 1, p.b_column = rank;
    p.c_row = base.dim(1), p.accumulate = true;
    launch(p);
  });
}

template <class Product>
void backward_input(const OpCall& call) {
  const Tensor &b = call.in[2], &d_y = call.d_out[0];
  const GradSlot &d_base = call.d_in[0], &d_h = call.d_in[1];
  if (d_base.wanted()) copy(d_base, d_y);
  if (!d_h.wanted()) return;
  const int64_t rank = b.dim(1);
  const Tensor sums = sums_like(call, d_h.tensor);
  each_low_rank_block(call.attr<LowRankAttr>(), [&](int32_t block, int64_t row, int64_t rows) {
    Product p;
    set_operands(p, from_element(d_y, row), from_element(b, row * rank), from_element(sums, block * rank));
    p.m = d_y.dim(0), p.n = rank, p.k = rows;
    p.a_row = d_y.dim(1), p.b_k = rank, p.c_row = d_h.tensor.dim(1);
    launch(p);
  });
  put_scaled(call, d_h, sums);
}

template <class Product>
void backward_weight(const OpCall& call) {
  const Tensor &h = call.in[1], &d_y = call.d_out[0];
  const GradSlot& d_b = call.d_in[2];
  const int64_t rank = d_b.tensor.dim(1);
  const Tensor sums = sums_like(call, d_b.tensor);
  each_low_rank_block(call.attr<LowRankAttr>(), [&](int32_t block, int64_t row, int64_t rows) {
    Product p;
    set_operands(p, from_element(d_y, row), from_element(h, block * rank), from_element(sums, row * rank));
    p.m = rows, p.n = rank, p.k = d_y.dim(0);
    p.a_row = 1, p.a_k = d_y.dim(1), p.b_k = h.dim(1), p.c_row = rank;
    launch(p);
  });
  put_scaled(call, d_b, sums);
}

const char* refuse_mma(const OpCall& call) {
  // The sum of base and product is rounded once, where it is formed: in y.
  if (call.in[0].defined() && !call.out.empty() && call.out[0].defined() &&
      call.in[0].dtype() != call.out[0].dtype())
    return "a base of another type than the output";
  return refuse_mma_types(call, 1, 2);
}

template <class Product>
constexpr GpuLaunches launches_of(const char* (*refuse)(const OpCall&)) {
  return {refuse, forward<Product>, backward_input<Product>, backward_weight<Product>};
}
constexpr GpuLaunches kLaunches = launches_of<GpuProduct>(refuse_other_than_f32);
constexpr GpuLaunches kMmaLaunches = on_tensor_cores(launches_of<GpuMmaProduct>(refuse_mma), 2);

}  // namespace

Kernel low_rank_gpu() {
  return emulated_kernel<low_rank_op, kLaunches>();
}
Kernel low_rank_mma_gpu() {
  return emulated_kernel<low_rank_op, kMmaLaunches>();
}

}  // namespace ingot
