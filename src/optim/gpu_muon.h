// Muon's kernels of GPUs (muon.cu), f32, over batches of matrices of one shape. Its products are those of
// device/gemm/gpu_product.h. Plain.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/gpu/launch.h"
#include "optim/device_step.h"
#include "optim/kernels.h"

namespace ingot {

/// One matrix of a batch; MuonUpdate::Matrix (muon.h) says what its numbers are.
struct GpuMuonMatrix {
  float* weights;
  const float* grad;
  float* momentum;  ///< nullptr: none
  double weight_decay, scale;
  int64_t index;  ///< its parameter's place among rates
  int64_t first;  ///< its first chunk's place among sums
};

struct GpuMuonBatch {
  const GpuMuonMatrix* matrices;
  int64_t batch;  ///< how many
  int64_t count;  ///< elements of each
  float* values;  ///< [batch, count]
  const double* rates;
  const UpdateDecision* decision;
  UpdateSums* sums;  ///< of all chunks
};

/// momentum_chunk(): momenta, and in `values` what is to be orthogonalised.
struct GpuMomentum {
  GpuMuonBatch of;
  const double* momentum;  ///< of the step
  bool nesterov, lerp;
};
INGOT_GPU_KERNEL(void, launch_momentum, (GpuStream stream, const GpuMomentum& args));

/// to <- from / (norm_factor sqrt(sum_squares) + eps) for each matrix [batch, count]; the two may be one.
struct GpuNormalise {
  const float* from;
  void* to;
  DType to_type;  ///< f32 or bf16
  int64_t batch, count;
  const double* sum_squares;  ///< [batch]
  double norm_factor, eps;
};
INGOT_GPU_KERNEL(void, launch_normalise, (GpuStream stream, const GpuNormalise& args));

/// apply_chunk(): weights from `values`, and the sums of their chunks.
INGOT_GPU_KERNEL(void, launch_apply, (GpuStream stream, const GpuMuonBatch& args));

}  // namespace ingot
