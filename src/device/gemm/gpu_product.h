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

/// to[j] (+)= the sum over rows of x[r * stride + j]: chunks of `chunk` rows, then their sums in order.
struct GpuColumnSums {
  const float* x = nullptr;
  int64_t rows = 0, columns = 0, stride = 0, chunk = 1;
  float* to = nullptr;
  bool accumulate = false;
};
INGOT_GPU_KERNEL(void, launch_column_sums, (GpuStream stream, const GpuColumnSums& sums));

}  // namespace ingot
