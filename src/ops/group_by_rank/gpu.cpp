// group_by_rank's kernel for GPUs: from tensors to the launches of group_by_rank.cu and array.cu.
#include "device/simd/gpu_array.h"
#include "ops/gpu_registry.h"
#include "ops/group_by_rank/call.h"
#include "ops/group_by_rank/gpu_group_by_rank.h"
#include "ops/group_by_rank/group_by_rank.h"

namespace ingot {
namespace {

void gather(const GradSlot& to, const Tensor& from, const int32_t* index, int64_t k) {
  INGOT_GPU_CALL(launch_gather)
  ({},
   {to.tensor.data, to.tensor.dtype(), from.data, from.dtype(), index, k, to.tensor.dim(1), to.accumulate},
   to.tensor.dim(0), nullptr);
}

GpuRankChoices choices_of(const OpCall& call) {
  const auto& a = call.attr<GroupByRankAttr>();
  const Tensor& ids = call.in[2];
  return {device_address<const int32_t>(ids),
          ids.dim(0),
          ids.dim(1),
          a.ranks,
          a.copies,
          a.first,
          a.experts,
          a.experts / (a.ranks / a.copies),
          call.out[5].dim(1)};
}

void forward(const OpCall& call) {
  const auto& a = call.attr<GroupByRankAttr>();
  const Tensor& blocks = call.in[3];
  auto* const taken = static_cast<int32_t*>(call.scratch);
  INGOT_GPU_CALL(launch_rank_map)
  ({}, {choices_of(call), a.bound, a.choices, device_address<const float>(call.in[1]),
        device_address<const int32_t>(blocks), blocks.defined() ? blocks.numel() : 1, call.out[4].numel(),
        device_address<float>(call.out[1]), device_address<int32_t>(call.out[2]),
        device_address<int32_t>(call.out[3]), device_address<int32_t>(call.out[4]),
        device_address<int32_t>(call.out[5]), device_address<float>(call.out[6]), taken, taken + a.ranks});
  gather({call.out[0], false}, call.in[0], device_address<const int32_t>(call.out[4]), 1);
}

void backward(const OpCall& call) {
  const GradSlot &d_x = call.d_in[0], &d_probs = call.d_in[1];
  const Tensor &d_rows = call.d_out[0], &row = call.out[5];
  const auto* index = device_address<const int32_t>(row);
  if (d_x.wanted() && d_rows.defined())
    gather(d_x, d_rows, index, row.dim(1));
  else if (d_x.wanted() && !d_x.accumulate)
    gather(d_x, d_x.tensor, index, 0);  // the sum of no rows
  if (d_probs.wanted()) INGOT_GPU_CALL(launch_rank_weights)
  ({}, {choices_of(call), index, device_address<const float>(call.d_out[1]),
        device_address<float>(d_probs.tensor), d_probs.accumulate});
}

constexpr GpuLaunches kLaunches{refuse_group_by_rank, forward, backward};

}  // namespace

Kernel group_by_rank_gpu() {
  return emulated_kernel<group_by_rank_op, kLaunches>();
}

}  // namespace ingot
