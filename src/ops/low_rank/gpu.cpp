// low_rank's kernel for GPUs, f32: from tensors to the launches of product.cu, one a block, and low_rank.cu.
#include "device/gemm/gpu_product.h"
#include "device/simd/gpu_array.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/low_rank/gpu_low_rank.h"
#include "ops/low_rank/low_rank.h"

namespace ingot {
namespace {

void scaled(float* to, const float* from, const OpCall& call, int64_t n, bool accumulate) {
  INGOT_GPU_CALL(launch_scaled)
  ({}, to, from, static_cast<float>(call.attr<LowRankAttr>().scale), n, accumulate);
}

void copy(const GradSlot& to, const Tensor& from) {
  INGOT_GPU_CALL(launch_array_copy)
  ({}, {to.tensor.data, DType::f32, from.data, DType::f32, from.numel(), to.accumulate});
}

void forward(const OpCall& call) {
  const Tensor &base = call.in[0], &h = call.in[1], &b = call.in[2], &y = call.out[0];
  const int64_t rank = b.dim(1);
  auto* const scaled_h = static_cast<float*>(call.scratch);
  scaled(scaled_h, device_address<const float>(h), call, h.numel(), false);
  copy({y, false}, base);
  each_low_rank_block(call.attr<LowRankAttr>(), [&](int32_t block, int64_t row, int64_t rows) {
    GpuProduct p;
    p.m = base.dim(0), p.n = rows, p.k = rank;
    p.a = scaled_h + block * rank, p.a_row = h.dim(1);
    p.b = device_address<const float>(b) + row * rank, p.b_k = 1, p.b_column = rank;
    p.c = device_address<float>(y) + row, p.c_row = base.dim(1), p.accumulate = true;
    INGOT_GPU_CALL(launch_product)({}, p);
  });
}

void backward_input(const OpCall& call) {
  const Tensor &b = call.in[2], &d_y = call.d_out[0];
  const GradSlot &d_base = call.d_in[0], &d_h = call.d_in[1];
  if (d_base.wanted()) copy(d_base, d_y);
  if (!d_h.wanted()) return;
  const int64_t rank = b.dim(1);
  auto* const sums = static_cast<float*>(call.scratch);
  each_low_rank_block(call.attr<LowRankAttr>(), [&](int32_t block, int64_t row, int64_t rows) {
    GpuProduct p;
    p.m = d_y.dim(0), p.n = rank, p.k = rows;
    p.a = device_address<const float>(d_y) + row, p.a_row = d_y.dim(1);
    p.b = device_address<const float>(b) + row * rank, p.b_k = rank;
    p.c = sums + block * rank, p.c_row = d_h.tensor.dim(1);
    INGOT_GPU_CALL(launch_product)({}, p);
  });
  scaled(device_address<float>(d_h.tensor), sums, call, d_h.tensor.numel(), d_h.accumulate);
}

void backward_weight(const OpCall& call) {
  const Tensor &h = call.in[1], &d_y = call.d_out[0];
  const GradSlot& d_b = call.d_in[2];
  const int64_t rank = d_b.tensor.dim(1);
  auto* const sums = static_cast<float*>(call.scratch);
  each_low_rank_block(call.attr<LowRankAttr>(), [&](int32_t block, int64_t row, int64_t rows) {
    GpuProduct p;
    p.m = rows, p.n = rank, p.k = d_y.dim(0);
    p.a = device_address<const float>(d_y) + row, p.a_row = 1, p.a_k = d_y.dim(1);
    p.b = device_address<const float>(h) + block * rank, p.b_k = h.dim(1);
    p.c = sums + row * rank, p.c_row = rank;
    INGOT_GPU_CALL(launch_product)({}, p);
  });
  scaled(device_address<float>(d_b.tensor), sums, call, d_b.tensor.numel(), d_b.accumulate);
}

constexpr GpuLaunches kLaunches{refuse_other_than_f32, forward, backward_input, backward_weight};

}  // namespace

Kernel low_rank_gpu() {
  return emulated_kernel<low_rank_op, kLaunches>();
}

}  // namespace ingot
