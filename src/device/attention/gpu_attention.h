// attention.h on a GPU, in its bits: the kernels of attention*.cu. Plain. Spans as those of a packed batch:
// keys and values in place, none past. Spans go with a launch, so many at a time, and are not looked for in
// the device's memory; documents in a list are.
#pragma once
#include "device/attention/attention.h"
#include "device/gpu/launch.h"

namespace ingot {

/// max_logit is 0 without rows.
INGOT_GPU_KERNEL(void, launch_attention_forward, (GpuStream stream, const AttentionArgs& args));
/// With `accumulate` the gradients, rounded to their type, are added to what is there.
INGOT_GPU_KERNEL(void, launch_attention_backward,
                 (GpuStream stream, const AttentionBackwardArgs& args, bool accumulate));

}  // namespace ingot
