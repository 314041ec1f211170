// shard_index and shard_rows on a GPU: a thread an id.
#include "device/gpu/rt.h"
#include "ops/shard_index/gpu_shard_index.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kThreads = 256;

INGOT_KERNEL(kThreads)
shard_index_kernel(const GpuShardIndex a) {
  const int64_t t = global_thread();
  if (t >= a.n) return;
  const int32_t x = a.x[t], local = x - a.first;
  a.y[t] = a.all_ids ? x : x < 0 ? -1 : 0 <= local && local < a.count ? local : a.elsewhere;
}

}  // namespace

void launch_shard_index(GpuStream stream, const GpuShardIndex& a) {
  launch("shard_index", shard_index_kernel, grid_of(a.n, kThreads), stream, a);
}

}  // namespace ingot::INGOT_ISA
