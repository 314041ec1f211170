// What low_rank does on a GPU besides its products: the scale.
#include "device/simd/loops.h"
#include "device/simd/row_kernels.h"
#include "ops/low_rank/gpu_low_rank.h"

namespace ingot::INGOT_ISA {
namespace {

/// Four threads for 16 elements.
INGOT_KERNEL(kRowKernelThreads)
scaled_kernel(float* to, const float* from, float scale, int64_t n, bool accumulate) {
  const int64_t i = row_of_thread() * kLanes;
  if (i >= n) return;
  const int m = static_cast<int>(min64(kLanes, n - i));
  put_n(to + i, set1(scale) * load_n(from + i, m), m, accumulate);
}

}  // namespace

void launch_scaled(GpuStream stream, float* to, const float* from, float scale, int64_t n, bool accumulate) {
  launch("scaled", scaled_kernel, grid_of_rows((n + kLanes - 1) / kLanes), stream, to, from, scale, n,
         accumulate);
}

}  // namespace ingot::INGOT_ISA
