// What of a run lies in the memory of a GPU, for the preflight. Plain.
#pragma once
#include <cstdint>

namespace ingot {

class TrainEngine;

/// Bytes.
struct MemoryOnGpu {
  // Where weights are there in a step (TrainEngine::device_of_weights()); else 0.
  int64_t weights = 0, gradients = 0, optimizer = 0;
  int64_t rounded = 0;      ///< copies of weights in bf16
  int64_t scratch = 0;      ///< of the update
  int64_t activations = 0;  ///< the slab of the largest micro-batch
  int64_t free = 0, all = 0;
  int64_t needed() const { return weights + gradients + optimizer + rounded + scratch + activations; }
};

/// Of a run whose slab has so many bytes, on the process's GPU. Errors as cuda_device().
MemoryOnGpu memory_on_gpu(const TrainEngine& engine, int64_t activations);

}  // namespace ingot
