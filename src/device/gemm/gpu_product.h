// The exact product on a GPU, f32: C = A B (+ C) (+ bias), where each output is one chain of fused
// multiply-adds over ascending k, from 0 or from C, and then the bias (docs/numerics.md, rule 2). Plain.
#pragma once
#include "device/gpu/launch.h"

namespace ingot {

/// Element (i, k) of A is a[i * a_row + k * a_k], element (k, j) of B is b[k * b_k + j * b_column].
struct GpuProduct {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_k = 1;
  const float* b = nullptr;
  int64_t b_k = 0, b_column = 1;
  float* c = nullptr;  ///< [m, n], rows c_row apart
  int64_t c_row = 0;
  const float* bias = nullptr;  ///< [n], or none
  bool accumulate = false;
};
INGOT_GPU_KERNEL(void, launch_product, (GpuStream stream, const GpuProduct& product));

/// Products of groups of rows, e of the rows offsets[e] .. offsets[e + 1] (on the device), each at most the
/// whole's; rows from offsets[groups] on are neither read nor written.
struct GpuGroupedProduct {
  GpuProduct product;
  const int32_t* offsets = nullptr;  ///< [groups + 1], ascending, from 0
  int64_t groups = 0, stride = 0;
};
/// C[r] = A[r] B_e for the rows r of group e: product.m counts the rows that there may be, and B's are
/// `stride` apart.
INGOT_GPU_KERNEL(void, launch_grouped_rows, (GpuStream stream, const GpuGroupedProduct& product));
/// C_e = the sum over the rows r of group e of A's column r by B's row r: product.k is not looked at, and C's
/// are `stride` apart. A group without rows gets 0, or keeps C.
INGOT_GPU_KERNEL(void, launch_grouped_depth, (GpuStream stream, const GpuGroupedProduct& product));

/// Products of `batch` matrices each, whose elements are so far apart; `first` is that of the first ones.
struct GpuBatchedProduct {
  GpuProduct first;
  int64_t batch = 0, a_stride = 0, b_stride = 0, c_stride = 0;
};
INGOT_GPU_KERNEL(void, launch_batched_product, (GpuStream stream, const GpuBatchedProduct& product));

/// The same of products that are symmetric but for rounding, [m, m] (gemm_symmetric()): the lower triangle is
/// computed and mirrored. With `plus`, which is symmetric and lies as C does, C becomes
///   diagonal I + plus_factor plus + factor (the product)
struct GpuSymmetricProduct {
  GpuBatchedProduct of;
  const float* plus = nullptr;
  float diagonal = 0, plus_factor = 0, factor = 1;
};
INGOT_GPU_KERNEL(void, launch_symmetric_product, (GpuStream stream, const GpuSymmetricProduct& product));

/// to[j] (+)= the sum over rows of x[r * stride + j]: chunks of `chunk` rows, then their sums in order.
struct GpuColumnSums {
  const float* x = nullptr;
  int64_t rows = 0, columns = 0, stride = 0, chunk = 1;
  float* to = nullptr;
  bool accumulate = false;
};
INGOT_GPU_KERNEL(void, launch_column_sums, (GpuStream stream, const GpuColumnSums& sums));

}  // namespace ingot
