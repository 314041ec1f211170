// assign's kernel for GPUs: from tensors to the launches of assign.cu.
#include "ops/assign/assign.h"
#include "ops/assign/call.h"
#include "ops/assign/gpu_assign.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

static_assert(kParameterChunkRows == 64, "GpuSinkhorn::partials");

void forward(const OpCall& call) {
  const AssignRows r = assign_rows(call);
  if (r.rows == 0) return;
  if (call.attr<AssignAttr>().rule == AssignRule::expert_choice)
    return INGOT_GPU_CALL(launch_expert_choice)({}, r, assign_taken(call));
  const AssignScratch s(call);
  INGOT_GPU_CALL(launch_sinkhorn)
  ({},
   {r, s.d1, s.partials, s.state, static_cast<float>(kSinkhornEpsilon), kSinkhornTolerance, kSinkhornRounds});
}

constexpr GpuLaunches kLaunches{refuse_assign, forward};

}  // namespace

Kernel assign_gpu() {
  return emulated_kernel<assign_op, kLaunches>();
}

}  // namespace ingot
