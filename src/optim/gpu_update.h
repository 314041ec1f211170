// The end of a training step on a GPU: norm of the gradients, update, QK-clip and the balance of routers by
// its kernels, asked for by host code, which waits for what it must know. (A device that takes host code as
// kernels is waited for once a step: device_update.h.)
#pragma once
#include <map>
#include <span>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "optim/device_update.h"

namespace ingot {

/// Not thread-safe.
class GpuUpdate {
 public:
  /// As DeviceUpdate.
  GpuUpdate(CudaDevice& device, Optimizer& optimizer, std::span<const ParamView> params,
            AfterUpdate after = {});

  /// Whether there are kernels for all of it; else the host's code must do it.
  bool takes_all() const;
  /// GradNorm::sum_squares of this rank's gradients, in the order of the parameters.
  std::vector<double> sum_squares() const;
  /// The update and what comes after it. `balances`: biases of routers move. By layer: how often each expert
  /// was chosen, and the largest attention logit of each query head. Returns how many heads were clipped.
  int64_t update(const StepArgs& args, bool balances, const std::map<int64_t, std::vector<int64_t>>& counts,
                 const std::map<int64_t, std::vector<double>>& logits);

 private:
  int64_t clip(const std::map<int64_t, std::vector<double>>& logits) const;
  void balance(bool moves, const std::map<int64_t, std::vector<int64_t>>& counts) const;

  CudaDevice& device_;
  Optimizer& optimizer_;
  const AfterUpdate after_;
  Optimizer::Place place_;
  const UpdateKernels* kernels_;  ///< of norm, clip and balance; nullptr: none take these parameters
  Optimizer::RuleKernels rules_;
  std::vector<BalanceController::Place> balance_places_;
};

}  // namespace ingot
