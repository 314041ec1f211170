// QK-clip and the balance of routers on a GPU (after_update.cu), over lists of layers on the device. Plain.
#pragma once
#include <cstdint>

#include "device/gpu/launch.h"
#include "optim/kernels.h"

namespace ingot {

/// One layer of qk_clip_factors() (qk_clip.h): key heads' groups are of heads / kv_heads query heads.
struct GpuQkLayer {
  const double* max_logit;  ///< [heads]
  int64_t heads, kv_heads;
  double key_share;  ///< 1 - alpha
  double* query;     ///< [heads]: their factors
  double* key;       ///< [kv_heads]
};
struct GpuQkFactors {
  const GpuQkLayer* layers;
  int64_t count;
  double threshold;
  double* clipped;  ///< += query heads above the threshold
};
INGOT_GPU_KERNEL(void, launch_qk_factors, (GpuStream stream, const GpuQkFactors& args));

/// Weights of a head, and the factors by which they are multiplied (nullptr: none).
struct GpuQkPart {
  float* weights;
  int64_t count;
  const double *query, *key;
};
INGOT_GPU_KERNEL(void, launch_qk_scale, (GpuStream stream, const GpuQkPart* parts, int64_t count));

/// BalanceTask (update_kernels.h).
struct GpuBalance {
  const double* counts;  ///< [experts]
  int64_t experts;
  float* load;
  bool moves_biases;
  BalanceArgs biases;
};
INGOT_GPU_KERNEL(void, launch_balance, (GpuStream stream, const GpuBalance* layers, int64_t count));

}  // namespace ingot
