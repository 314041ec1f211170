// Products of bf16 on the tensor cores of the device that the thread launches on: by Hopper's instructions
// (wgmma_product.cu) where that has them and they take the operands, else by those of every GPU
// (mma_product.cu). Which one follows from the device, types and strides, never from the number of rows, so
// a row has the same bits among others and alone; the form of Hopper's for few rows takes the same chains.
// Where it was asked for, cuBLASLt multiplies in their place (library_choice.h).
#pragma once
#include "device/gemm/gpu_product.h"

namespace ingot {

/// C = A B as launch_mma_product(), launch_grouped_mma_rows() and launch_grouped_mma_depth() say. f32 that is
/// read as its rounding is rounded first where wgmma multiplies, into memory that the device lends. C = A B
/// alone has an epilogue, where A is bf16 and both operands lie along k; then our kernels multiply, never
/// cuBLASLt.
void multiply_on_tensor_cores(const GpuMmaProduct& product);
void multiply_rows_on_tensor_cores(const GpuGroupedMmaProduct& product);
void multiply_depth_on_tensor_cores(const GpuGroupedMmaProduct& product);
/// Products of many matrices as launch_batched_mma_product() and launch_symmetric_mma_product() say.
void multiply_batch_on_tensor_cores(const GpuBatchedMmaProduct& product);
void multiply_symmetric_on_tensor_cores(const GpuBatchedMmaProduct& product);

}  // namespace ingot
