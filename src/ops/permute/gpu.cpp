// The kernels of permute and unpermute for GPUs: from tensors to the launches of permute.cu and array.cu.
#include "device/simd/gpu_array.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/permute/gpu_permute.h"
#include "ops/permute/permute.h"

namespace ingot {
namespace {

/// gather_tensor_rows() (ops/common.h) of the rows before *end.
void gather(const GradSlot& to, const Tensor& from, const int32_t* index, int64_t k,
            const int32_t* end = nullptr) {
  INGOT_GPU_CALL(launch_gather)
  ({},
   {to.tensor.data, to.tensor.dtype(), from.data, from.dtype(), index, k, to.tensor.dim(1), to.accumulate},
   to.tensor.dim(0), end);
}

/// Where the number of rows that hold data is; nullptr: all of them do.
const int32_t* end_of(const Tensor& offsets) {
  return offsets.defined() ? device_address<const int32_t>(offsets) + offsets.numel() - 1 : nullptr;
}

void forward(const OpCall& call) {
  const auto& a = call.attr<PermuteAttr>();
  const Tensor &x = call.in[0], &ids = call.in[2], &rows = call.out[0];
  const auto* token = device_address<const int32_t>(call.out[3]);
  INGOT_GPU_CALL(launch_row_map)
  ({}, {device_address<const int32_t>(ids), ids.numel(), ids.dim(1), a.first, a.experts, a.bound, a.pad,
        rows.dim(0), device_address<const float>(call.in[1]), device_address<int32_t>(call.out[2]),
        device_address<int32_t>(call.out[3]), device_address<int32_t>(call.out[4]),
        device_address<float>(call.out[1])});
  gather({rows, false}, x, token, 1, end_of(call.out[2]));
}

void backward(const OpCall& call) {
  const Tensor &map = call.out[4], &d_rows = call.d_out[0], &d_p = call.d_out[1];
  const auto* row = device_address<const int32_t>(map);
  const GradSlot &d_x = call.d_in[0], &d_probs = call.d_in[1];
  if (d_x.wanted() && d_rows.defined())
    gather(d_x, d_rows, row, map.dim(1));
  else if (d_x.wanted() && !d_x.accumulate)
    gather(d_x, d_x.tensor, row, 0);  // the sum of no rows
  if (d_probs.wanted()) INGOT_GPU_CALL(launch_slot_values)
  ({}, {row, map.numel(), device_address<const float>(d_p), device_address<float>(d_probs.tensor),
        d_probs.accumulate});
}

void forward_back(const OpCall& call) {
  const Tensor& row = call.in[1];
  gather({call.out[0], false}, call.in[0], device_address<const int32_t>(row), row.dim(1));
}

void backward_back(const OpCall& call) {
  if (call.d_in[0].wanted())
    gather(call.d_in[0], call.d_out[0], device_address<const int32_t>(call.in[2]), 1, end_of(call.in[3]));
}

constexpr GpuLaunches kPermute{refuse_permute, forward, backward};
constexpr GpuLaunches kUnpermute{refuse_other_floats, forward_back, backward_back};

}  // namespace

Kernel permute_gpu() {
  return emulated_kernel<permute_op, kPermute>();
}
Kernel unpermute_gpu() {
  return emulated_kernel<unpermute_op, kUnpermute>();
}

}  // namespace ingot
