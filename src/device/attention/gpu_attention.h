// attention.h on a GPU: in its bits by the kernels of attention*.cu, and of bf16 on tensor cores by those of
// mma_attention*.cu. Plain. Spans as those of a packed batch: keys and values in place, none past. Spans go
// with a launch, so many at a time, and are not looked for in the device's memory; documents in a list are.
#pragma once
#include "device/attention/attention.h"
#include "device/gpu/launch.h"

namespace ingot {

/// Before a forward: what max_logit is raised from, -inf, or 0 where a call has no rows.
INGOT_GPU_KERNEL(void, launch_first_max_logit,
                 (GpuStream stream, float* max_logit, int64_t heads, bool has_rows));
/// Raises max_logit.
INGOT_GPU_KERNEL(void, launch_attention_forward, (GpuStream stream, const AttentionArgs& args));
/// With `accumulate` the gradients, rounded to their type, are added to what is there.
INGOT_GPU_KERNEL(void, launch_attention_backward,
                 (GpuStream stream, const AttentionBackwardArgs& args, bool accumulate));

/// The same of bf16 on tensor cores. Spans may also be those of a cache, all of them, with turned_keys: a
/// launch each, for which their blocks and the lists of these must be in reach.
INGOT_GPU_KERNEL(void, launch_mma_attention_forward, (GpuStream stream, const AttentionArgs& args));
INGOT_GPU_KERNEL(void, launch_mma_attention_backward,
                 (GpuStream stream, const AttentionBackwardArgs& args, bool accumulate));

}  // namespace ingot
