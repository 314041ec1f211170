// The kernels of optim.cu, f32, over lists of chunks on the device. Plain.
#pragma once
#include <cstdint>

#include "device/gpu/launch.h"
#include "optim/kernels.h"

namespace ingot {

/// The chunks of tensors: those of tensor t are first[t] .. first[t + 1].
struct GpuTensors {
  const int64_t* first;  ///< [tensors + 1]
  int64_t tensors;
};

/// sum_squares_chunk() of each chunk, and of each tensor the sum over its chunks in ascending order.
struct GpuSumSquares {
  struct Part {
    const float* x;
    int64_t count;
  };
  const Part* parts;
  int64_t chunks;
  double* partial;  ///< [chunks]
  GpuTensors of;
  double* sums;  ///< [tensors]
};
INGOT_GPU_KERNEL(void, launch_sum_squares, (GpuStream stream, const GpuSumSquares& args));

/// The gradient's norm and the factor that clips it, as GradNorm::combine() and clip_factor().
struct GpuClip {
  const double* sum_squares;
  int64_t tensors;
  double grad_scale, max_norm;
  const double* loss;
  double* factor;
  int32_t* is_finite;  ///< whether the loss and every sum are
};
INGOT_GPU_KERNEL(void, launch_clip_factor, (GpuStream stream, const GpuClip& args));

/// adamw_chunk() of each chunk, all in f32 without a compute copy.
struct GpuAdamW {
  const AdamWChunk* parts;
  int64_t chunks;
  UpdateSums* sums;  ///< [chunks]
};
INGOT_GPU_KERNEL(void, launch_adamw, (GpuStream stream, const GpuAdamW& args));

/// UpdateStat (param.h).
struct GpuUpdateStat {
  double update_rms, weight_rms;
};

/// Of each tensor what its chunks' sums make, as combine() (work.h): added for each block of its weights,
/// then over blocks.
struct GpuUpdateStats {
  const UpdateSums* sums;      ///< of all chunks
  const int64_t* first_chunk;  ///< [blocks + 1]
  const int64_t* first_block;  ///< [tensors + 1]; nullptr: each tensor is one block
  int64_t tensors;
  const int64_t* counts;  ///< [tensors]: elements
  GpuUpdateStat* stats;   ///< [tensors]
};
INGOT_GPU_KERNEL(void, launch_update_stats, (GpuStream stream, const GpuUpdateStats& args));

}  // namespace ingot
