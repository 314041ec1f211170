// The kernels of cca.cu and cca_backward.cu. Plain. Documents are whole; those without rows have none of u
// and d_c. A position outside of the rotary table gives NaN.
#pragma once
#include <cstdint>

#include "device/documents.h"
#include "device/gpu/launch.h"
#include "ops/cca/isa_cca.h"

namespace ingot {

/// A call and its buffers. Of rows: u, d_c and d_u hold all view rows of the call and a row of zeros, d_u
/// where u was; older and newer are what launch_cca_begin() makes of the taps; c is not used.
struct GpuCca {
  CcaRows rows;
  int64_t count;      ///< rows of the call
  const float* taps;  ///< [C, 2]
  float* own_taps;    ///< [2, C]: what older and newer point to
  int32_t* views;     ///< [count]: a row's view row
  int32_t* offsets;   ///< [H + G + 1]: multiples of the view rows; backward
  const void* grouped;
  DType grouped_type;
  bool grouped_is_rounded;  ///< an f32 that is read as its rounding to bf16
  const float* grouped_bias;
  /// Backward: of each chunk of 64 rows the sums for older, newer, the depthwise bias, the grouped bias, [C]
  /// each, and the temperature [G].
  float* sums;
  int64_t sum_stride;
  DocumentList listed;  ///< in place of those that go with a launch
};

/// Before all others: taps, views and offsets, and zeros behind u and d_c. `begins`: the first rows of the
/// documents that have rows, ascending.
INGOT_GPU_KERNEL(void, launch_cca_begin,
                 (GpuStream stream, const GpuCca& args, const int32_t* begins, int64_t documents));
/// The same of args.listed, as many as its capacity: u and d_c of documents that are not there are zeros.
INGOT_GPU_KERNEL(void, launch_cca_begin_listed, (GpuStream stream, const GpuCca& args));
INGOT_GPU_KERNEL(void, launch_cca_forward, (GpuStream stream, const GpuCca& args));
/// d_c, u, and the sums that follow from them.
INGOT_GPU_KERNEL(void, launch_cca_heads_backward, (GpuStream stream, const GpuCca& args));
/// d_u from d_c, in the place of u.
INGOT_GPU_KERNEL(void, launch_cca_grouped_backward, (GpuStream stream, const GpuCca& args));
/// d_x, and the sums of the depthwise convolution.
INGOT_GPU_KERNEL(void, launch_cca_depthwise_backward, (GpuStream stream, const GpuCca& args));

}  // namespace ingot
