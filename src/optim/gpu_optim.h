// The kernels of optim.cu, f32, over lists of tensors on the device. Plain.
#pragma once
#include <cstdint>

#include "device/gpu/launch.h"
#include "optim/device_step.h"
#include "optim/kernels.h"

namespace ingot {

/// The chunks of tensors: those of tensor t are first[t] .. first[t + 1].
struct GpuTensors {
  const int64_t* first;  ///< [tensors + 1]
  int64_t tensors;
};

/// Of each tensor the sum of sum_squares_chunk() over its chunks in ascending order.
struct GpuSumSquares {
  struct Values {
    const float* x;
    int64_t count;
  };
  GpuTensors of;
  const Values* tensors;  ///< nullptr: all are like `equal`, and lie beside each other from it on
  Values equal;
  int64_t chunks;
  double* partial;  ///< [chunks]
  double* sums;     ///< [tensors]
};
INGOT_GPU_KERNEL(void, launch_sum_squares, (GpuStream stream, const GpuSumSquares& args));

/// clip_of(): the gradient's norm, the factor that clips it, and whether the loss and every sum are finite.
struct GpuDecision {
  const double* sum_squares;
  int64_t tensors;
  double max_norm;
  const double* loss;
  const StepScalars* scalars;
  UpdateDecision* decision;
};
INGOT_GPU_KERNEL(void, launch_decision, (GpuStream stream, const GpuDecision& args));

/// A tensor of an AdamW update, f32 without a compute copy.
struct GpuAdamWTensor {
  float* weights;
  const float* grad;
  float *exp_avg, *exp_avg_sq;
  float* exp_avg_slow;  ///< AdEMAMix; nullptr: AdamW
  int64_t count;
  int64_t index;  ///< its place among rates
  double weight_decay;
};

/// adamw_chunk() of each chunk.
struct GpuAdamW {
  GpuTensors of;
  const GpuAdamWTensor* tensors;
  int64_t chunks;
  double beta1, beta2, eps;
  const AdamWNumbers* numbers;
  const double* rates;
  const UpdateDecision* decision;
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
  const int64_t* counts;   ///< [tensors]: elements
  const int64_t* indices;  ///< [tensors]: places among `stats`
  GpuUpdateStat* stats;
};
INGOT_GPU_KERNEL(void, launch_update_stats, (GpuStream stream, const GpuUpdateStats& args));

}  // namespace ingot
