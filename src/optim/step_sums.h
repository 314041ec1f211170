// Where the micro-batches of a training step add, on a device, what its end needs of them: doubles that are
// zero when the step begins.
#pragma once
#include <cstdint>
#include <map>

namespace ingot {

/// Addresses on the device.
struct StepSums {
  void* loss = nullptr;             ///< log-probabilities of the targets: finite if they are
  std::map<int64_t, void*> counts;  ///< by layer, of each expert: choices
  std::map<int64_t, void*> logits;  ///< by layer, of each query head: the largest attention logit above zero
};

}  // namespace ingot
