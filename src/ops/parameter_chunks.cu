// Sums of chunks' partial sums on a GPU: a thread a column, chunks in ascending order.
#include "device/gpu/rt.h"
#include "ops/gpu_parameter_chunks.h"

namespace ingot::INGOT_ISA {
namespace {

INGOT_KERNEL(128)
parameter_sum_kernel(const GpuParameterSum s) {
  const int64_t i = global_thread();
  if (i >= s.width) return;
  float sum = 0;
  for (int64_t c = 0; c < s.chunks; ++c) {
    const float part = s.partials[c * s.stride + i];
    sum = add_rn(sum, s.scale != nullptr ? mul_rn(part, s.scale[i]) : part);
  }
  float& to = s.to[i * s.step];
  to = s.accumulate ? add_rn(to, sum) : sum;
}

}  // namespace

void launch_parameter_sum(GpuStream stream, const GpuParameterSum& sum) {
  if (sum.to != nullptr) launch("parameter_sum", parameter_sum_kernel, grid_of(sum.width, 128), stream, sum);
}

}  // namespace ingot::INGOT_ISA
