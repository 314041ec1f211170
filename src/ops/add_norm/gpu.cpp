// add_norm's kernel for GPUs: from tensors to the launches of add_norm.cu.
#include "ops/add_norm/add_norm.h"
#include "ops/add_norm/call.h"
#include "ops/add_norm/gpu_add_norm.h"
#include "ops/gpu_parameter_chunks.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

using namespace add_norm_slot;

void forward(const OpCall& call) {
  INGOT_GPU_CALL(launch_add_norm_forward)({}, add_norm_forward_rows(call), call.in[kX].dim(0));
}

void backward(const OpCall& call) {
  AddNormRows p = add_norm_backward_rows(call);
  const int64_t rows = call.out[kRstd].dim(0), D = p.width, chunks = parameter_chunks(rows),
                stride = kAddNormSums * D;
  auto* const s = static_cast<float*>(call.scratch);
  p.terms = s + chunks * stride;
  INGOT_GPU_CALL(launch_add_norm_backward)({}, p, rows);
  INGOT_GPU_CALL(launch_add_norm_sums)
  ({}, p, rows, kParameterChunkRows, {s, s + D, s + 2 * D, s + 3 * D, s + 4 * D}, stride);
  const auto combine = [&](int64_t sum, uint32_t input, const float* scale) {
    const GradSlot& slot = call.d_in[input];
    INGOT_GPU_CALL(launch_parameter_sum)
    ({}, {s + sum * D, chunks, stride, D, scale, device_address<float>(slot.tensor), slot.accumulate});
  };
  combine(0, kWeight, nullptr);
  combine(1, kBias, nullptr);
  combine(2, kStreamBias, p.stream_scale);
  combine(2, kYBias, p.y_scale);
  combine(3, kStreamScale, nullptr);
  combine(4, kYScale, nullptr);
}

constexpr GpuLaunches kLaunches{refuse_add_norm, forward, backward};

}  // namespace

Kernel add_norm_gpu() {
  return emulated_kernel<add_norm_op, kLaunches>();
}

}  // namespace ingot
