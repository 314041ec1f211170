// Products that ops launch on a GPU, exact ones of f32 or those of bf16 on tensor cores, by one text: from
// tensors to operands, and from a product to its launch.
#pragma once
#include "device/gemm/gpu_tensor_cores.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"

namespace ingot {

inline void set_operands(GpuProduct& p, const Tensor& a, const Tensor& b, const Tensor& c) {
  p.a = a.data, p.a_type = a.dtype();
  p.b = b.data, p.b_type = b.dtype();
  p.c = c.data, p.c_type = c.dtype();
}
inline MmaOperand mma_operand(const Tensor& t) {
  if (t.rounded()) return MmaOperand::rounded;
  return t.dtype() == DType::bf16 ? MmaOperand::bf16 : MmaOperand::split;
}
inline void set_operands(GpuMmaProduct& p, const Tensor& a, const Tensor& b, const Tensor& c) {
  p.a = a.data, p.a_is = mma_operand(a);
  p.b = b.data, p.b_is = mma_operand(b);
  p.c = c.data, p.c_type = c.dtype();
  INGOT_CHECK(p.b_is != MmaOperand::split, "a product by {}", b.meta.str());
}

inline void launch(const GpuProduct& p) {
  INGOT_GPU_CALL(launch_product)({}, p);
}
inline void launch(const GpuMmaProduct& p) {
  multiply_on_tensor_cores(p);
}
inline void launch_rows(const GpuGroupedProduct& g) {
  INGOT_GPU_CALL(launch_grouped_rows)({}, g);
}
inline void launch_rows(const GpuGroupedMmaProduct& g) {
  multiply_rows_on_tensor_cores(g);
}
inline void launch_depth(const GpuGroupedProduct& g) {
  INGOT_GPU_CALL(launch_grouped_depth)({}, g);
}
inline void launch_depth(const GpuGroupedMmaProduct& g) {
  multiply_depth_on_tensor_cores(g);
}

/// That A of a product on tensor cores, f32 in memory, is rounded and not split. Exact ones read it as it is.
inline void round_first(GpuProduct&) {}
inline void round_first(GpuMmaProduct& p) {
  p.a_is = MmaOperand::rounded;
}

/// For GpuLaunches::refuse of an op that multiplies input `rows` by weights, input `weight`: what tensor
/// cores do not take. What stands second in a product must be bf16: the weights, or in backward_weight, which
/// does not see them, the rows. What stands first may be f32.
inline const char* refuse_mma_types(const OpCall& call, size_t rows, size_t weight) {
  if (const char* reason = refuse_weight_types(call, weight)) return reason;
  const Tensor& second = call.in[weight].defined() ? call.in[weight] : call.in[rows];
  return second.dtype() == DType::bf16 ? nullptr : "operands of f32";
}

}  // namespace ingot
