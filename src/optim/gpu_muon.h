// Muon's kernels of GPUs (muon.cu), f32, over batches of matrices of one shape. Its products are those of
// device/gemm/gpu_product.h. Plain.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/gpu/launch.h"
#include "optim/kernels.h"

namespace ingot {

/// One matrix of a batch; MuonUpdate::Matrix (muon.h) says what its numbers are.
struct GpuMuonMatrix {
  float* weights;
  const float* grad;
  float* momentum;  ///< nullptr: none
  float decay, step_size;
  UpdateSums* sums;  ///< of each of its chunks
};

struct GpuMuonBatch {
  const GpuMuonMatrix* matrices;
  int64_t batch;  ///< how many
  int64_t count;  ///< elements of each
  float* values;  ///< [batch, count]
};

/// momentum_chunk(): momenta, and in `values` what is to be orthogonalised.
struct GpuMomentum {
  GpuMuonBatch of;
  float grad_scale, beta, grad_weight;
  bool nesterov;
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
