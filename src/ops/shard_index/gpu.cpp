// The kernels of shard_index and shard_rows for GPUs: from tensors to the launches of shard_index.cu.
#include "ops/gpu_registry.h"
#include "ops/reference.h"
#include "ops/shard_index/gpu_shard_index.h"
#include "ops/shard_index/shard_index.h"

namespace ingot {
namespace {

void forward(const OpCall& call) {
  const auto& a = call.attr<ShardIndexAttr>();
  INGOT_GPU_CALL(launch_shard_index)
  ({}, {device_address<const int32_t>(call.in[0]), device_address<int32_t>(call.out[0]), call.out[0].numel(),
        false, a.first, a.count, a.elsewhere});
}

void forward_rows(const OpCall& call) {
  const auto* x = device_address<const int32_t>(call.in[0]) + call.attr<ShardRowsAttr>().first;
  INGOT_GPU_CALL(launch_shard_index)
  ({}, {x, device_address<int32_t>(call.out[0]), call.out[0].numel(), true, 0, 0, 0});
}

constexpr GpuLaunches kIndex{reference::accept, forward};
constexpr GpuLaunches kRows{reference::accept, forward_rows};

}  // namespace

Kernel shard_index_gpu() {
  return emulated_kernel<shard_index_op, kIndex>();
}
Kernel shard_rows_gpu() {
  return emulated_kernel<shard_rows_op, kRows>();
}

}  // namespace ingot
