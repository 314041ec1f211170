// The end of a training step on a device: gradient norm, clip, update, QK-clip and the balance of routers are
// kernels there, and what the host wants to know of them lies in one block, which it reads with everything
// else of the step. Where a gradient or the loss is not finite they change nothing.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "device/gpu/workspace.h"
#include "device/host_kernel.h"
#include "optim/balance.h"
#include "optim/optimizer.h"
#include "optim/qk_clip.h"
#include "optim/step_sums.h"

namespace ingot {

/// What a step changes beside the optimizer's parameters, by addresses of the device.
struct AfterUpdate {
  QkClipConfig clip = {};
  std::vector<QkClipLayer> clip_layers = {};  ///< qk_clip_layers(); empty: no clip
  std::vector<int64_t> moe_layers = {};
  int64_t experts = 0;                   ///< E
  BalanceController* balance = nullptr;  ///< of all MoE layers or none
  std::vector<void*> biases = {};        ///< of the layers of `balance`
  std::vector<void*> loads = {};         ///< [E] by MoE layer, or empty: load_fractions() of the step
};

/// Not thread-safe.
class DeviceUpdate {
 public:
  /// `params`: those of the optimizer in its order, with weights and gradients on the device, which stay
  /// there. Optimizer and controller must outlive this and everything that it asked the device for.
  DeviceUpdate(DeviceKind device, Optimizer& optimizer, std::span<const ParamView> params,
               AfterUpdate after = {});

  /// Whether the device makes all of it: one that takes no host code may lack kernels for a part.
  bool takes_all() const;
  /// What the micro-batches of a step add to.
  const StepSums& sums() const { return sums_; }
  /// Before the passes of a step.
  void begin_step();
  /// Asks for the norm of the gradients, the update, whose clip factor follows there from the norm, and what
  /// comes after it; from the third time on as one graph, where the device has them. `balances`: biases of
  /// routers move.
  void launch(const StepArgs& args, bool balances);

  // The same in halves, where other ranks hold a part of what the norm and the sums are of.

  /// Asks for the sums of squares of this rank's gradients.
  void launch_norm();
  /// Of a copy of the block.
  std::vector<double> sum_squares(const Tensor& host_block) const;
  /// Asks for the update and what comes after it, with what all ranks know now: StepArgs::clip_factor, and by
  /// layer what StepSums would hold.
  void launch_update(const StepArgs& args, bool balances,
                     const std::map<int64_t, std::vector<int64_t>>& counts,
                     const std::map<int64_t, std::vector<double>>& logits);

  /// The block of the step, on the device.
  Tensor block() const;
  struct Result {
    std::vector<double> sum_squares;  ///< of each gradient, in the order of the parameters
    int64_t clipped_heads = 0;
  };
  /// Takes a copy of the block: the optimizer gets the sizes of the updates, or its step back where the
  /// update changed nothing.
  Result take(const Tensor& host_block);

 private:
  /// First words of what the block holds.
  struct Words {
    size_t scalars = 0;      ///< StepScalars
    size_t numbers = 0;      ///< Optimizer::numbers()
    size_t rates = 0;        ///< Optimizer::rates()
    size_t sum_squares = 0;  ///< of each gradient
    size_t stats = 0;        ///< an UpdateStat of each parameter
    size_t decision = 0;     ///< UpdateDecision
    size_t clipped = 0;      ///< heads
    size_t loss = 0;         ///< StepSums::loss
    size_t sums = 0;         ///< its counts by layer, and its logits by layer
    size_t all = 0;          ///< how many there are
  };
  void put_scalars(const StepArgs& args, bool balances, double clip_factor);
  void* word(size_t index) const { return static_cast<double*>(block_.on_device()) + index; }
  KernelRange whole_block() const;
  /// Index of the word at an address of the block.
  size_t index_of(const void* address) const;
  /// What kernels read and write of a block at this address.
  DeviceStep step_at(void* block);
  void launch_kernels();
  void launch_update_kernels();
  void launch_step();
  void launch_clip();
  void launch_balance();
  /// `at`: the block, loads, and of each layer of the balance what its update writes.
  void balance_at(std::span<void* const> at);

  Device& device_;
  Optimizer& optimizer_;
  const AfterUpdate after_;
  Optimizer::Place place_;
  const UpdateKernels *norm_kernels_, *clip_kernels_, *balance_kernels_;  ///< nullptr: the CPU's
  Optimizer::RuleKernels rule_kernels_;
  Words words_;
  Buffer block_;
  StepSums sums_;
  std::vector<BalanceController::Place> balance_places_;
  KeptLists lists_;
  DeviceGraph graph_;
  int64_t eager_ = 0;   ///< launches without the graph since `config_`
  int64_t config_ = 0;  ///< Optimizer::config_version() of the last launch
};

}  // namespace ingot
