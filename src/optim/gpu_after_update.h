// QK-clip and the balance of routers on a GPU (after_update.cu), over lists of layers on the device. Plain.
#pragma once
#include <cstdint>

#include "device/gpu/launch.h"
#include "optim/device_step.h"
#include "optim/kernels.h"

namespace ingot {

/// One layer of qk_clip_factors() (qk_clip.h): key heads' groups are of heads / kv_heads query heads.
struct GpuQkLayer {
  const double* max_logit;  ///< [heads]
  int64_t heads, kv_heads;
  double key_share;  ///< 1 - alpha
  int64_t query;     ///< where the factors of its query heads begin
  int64_t key;       ///< and those of its key heads
};
struct GpuQkFactors {
  const GpuQkLayer* layers;
  int64_t count;
  double threshold;
  double* factors;
  const UpdateDecision* decision;
  double* clipped;  ///< += query heads above the threshold
};
INGOT_GPU_KERNEL(void, launch_qk_factors, (GpuStream stream, const GpuQkFactors& args));

/// Weights of a head, and where the factors are by which they are multiplied (-1: none).
struct GpuQkPart {
  float* weights;
  int64_t count, query, key;
};
struct GpuQkParts {
  const GpuQkPart* parts;
  int64_t count;
  const double* factors;
  const UpdateDecision* decision;
};
INGOT_GPU_KERNEL(void, launch_qk_scale, (GpuStream stream, const GpuQkParts& args));

/// BalanceTask (update_kernels.h).
struct GpuBalanceLayer {
  const double* counts;  ///< [experts]
  int64_t experts;
  float* load;
  int64_t moves_biases;  ///< 1, else 0
  BalanceArgs biases;
};
struct GpuBalance {
  const GpuBalanceLayer* layers;
  int64_t count;
  const StepScalars* scalars;
  const UpdateDecision* decision;
};
INGOT_GPU_KERNEL(void, launch_balance, (GpuStream stream, const GpuBalance& args));

}  // namespace ingot
