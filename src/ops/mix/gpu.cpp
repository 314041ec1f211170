// mix's kernel for GPUs: from tensors to the launches of mix.cu.
#include "ops/common.h"
#include "ops/gpu_parameter_chunks.h"
#include "ops/gpu_registry.h"
#include "ops/mix/call.h"
#include "ops/mix/gpu_mix.h"
#include "ops/mix/mix.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

using namespace mix_slot;

static_assert(kParameterChunkRows == 64, "launch_mix_sums");

void forward(const OpCall& call) {
  INGOT_GPU_CALL(launch_mix_forward)({}, mix_forward_rows(call), call.out[0].dim(0));
}

void backward(const OpCall& call) {
  const int64_t rows = call.d_out[0].dim(0);
  const GradSlot* const scalars[] = {&call.d_in[kAlpha], &call.d_in[kBeta]};
  auto* const sums = static_cast<float*>(call.scratch);
  if (scalars[0]->wanted() || scalars[1]->wanted())
    INGOT_GPU_CALL(launch_mix_sums)({}, mix_scalar_rows(call), rows, sums);
  for (int i = 0; i < 2; ++i) INGOT_GPU_CALL(launch_parameter_sum)
  ({}, {sums + i, parameter_chunks(rows), 2, 1, nullptr, device_address<float>(scalars[i]->tensor),
        scalars[i]->accumulate});
  INGOT_GPU_CALL(launch_mix_backward)({}, mix_backward_rows(call), rows);
}

constexpr GpuLaunches kLaunches{refuse_other_floats, forward, backward};

}  // namespace

Kernel mix_gpu() {
  return emulated_kernel<mix_op, kLaunches>();
}

}  // namespace ingot
