// Where the micro-batches of a training step add, on a device, what its end needs of them: doubles that are
// zero when the step begins.
#pragma once
#include <cstdint>
#include <map>

#include "tensor/tensor.h"

namespace ingot {

/// Addresses on the device.
struct StepSums {
  void* loss = nullptr;             ///< log-probabilities of the targets: finite if they are
  std::map<int64_t, void*> counts;  ///< by layer, of each expert: choices
  std::map<int64_t, void*> logits;  ///< by layer, of each query head: the largest attention logit above zero
};

/// Asks for sum += the log-probabilities (f32 [T]) of those targets (i32 [T]) that are not negative.
void add_logprobs(const Tensor& logprob_T, const Tensor& targets_T, void* sum);
/// Asks for sums[i] += values[i] (f32); `largest`: the larger of both stands for their sum.
void add_values(const Tensor& values, void* sums, bool largest);

}  // namespace ingot
