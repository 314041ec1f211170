// Work on arrays on a GPU, in the bits of row_functions.h. Plain.
#pragma once
#include "base/dtype.h"
#include "device/gpu/launch.h"
#include "device/simd/row_functions.h"

namespace ingot {

/// to[i] = from[i], or to[i] + from[i]; f32 and bf16 in any combination. Not for overlapping arrays.
struct GpuArrayCopy {
  void* to;
  DType to_type;
  const void* from;
  DType from_type;
  int64_t n;
  bool accumulate;
};
INGOT_GPU_KERNEL(void, launch_array_copy, (GpuStream stream, const GpuArrayCopy& copy));

/// gather_rows() of the rows before *end, a number on the device, at most `rows`; nullptr: all of them.
INGOT_GPU_KERNEL(void, launch_gather,
                 (GpuStream stream, const GatherArgs& args, int64_t rows, const int32_t* end));

}  // namespace ingot
