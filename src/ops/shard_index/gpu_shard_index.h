// The kernel of shard_index.cu. Plain.
#pragma once
#include <cstdint>

#include "device/gpu/launch.h"

namespace ingot {

/// y[t] of the n ids x[t], as shard_index (shard_index.h) makes it; all_ids: as shard_rows does, a copy.
struct GpuShardIndex {
  const int32_t* x;
  int32_t* y;
  int64_t n;
  bool all_ids;
  int32_t first, count, elsewhere;
};
INGOT_GPU_KERNEL(void, launch_shard_index, (GpuStream stream, const GpuShardIndex& args));

}  // namespace ingot
