// The end of a training step on a device that takes host code: gradient norm, clip and update are kernels
// there, and what the host wants to know of them lies in one block, which it reads with everything else of
// the step. Where a gradient or the loss is not finite the update changes nothing.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "device/host_kernel.h"
#include "optim/optimizer.h"
#include "optim/qk_clip.h"

namespace ingot {

/// Not thread-safe.
class DeviceUpdate {
 public:
  /// `params`: those of the optimizer in its order, with weights and gradients on the device, which stay
  /// there. The optimizer must outlive this and everything that it asked the device for.
  DeviceUpdate(DeviceKind device, Optimizer& optimizer, std::span<const ParamView> params);

  /// A double on the device, zero after begin_step(): the update changes nothing if it is not finite.
  void* loss_word() const { return word(words_ - 1); }
  /// Before the passes of a step.
  void begin_step();
  /// Asks for the norm of the gradients and the update, whose clip factor follows there from the norm; from
  /// the third time on as one graph, where the device has them.
  void launch(const StepArgs& args);
  /// The block of the step, on the device.
  Tensor block() const;
  /// Takes a copy of the block: the optimizer gets the sizes of the updates, or its step back where the
  /// update changed nothing. Returns the sum of squares of each gradient, in the order of the parameters.
  std::vector<double> take(const Tensor& host_block);

  /// qk_clip() of a layer whose addresses are the device's.
  int64_t clip_heads(const QkClipConfig& config, const QkClipLayer& layer, std::span<const double> max_logit);

 private:
  /// Words of the block: sums of squares, pairs of an UpdateStat, the rate, the gradients' scale, the step's
  /// number, whether the update was made, the loss word.
  void* word(size_t index) const { return static_cast<double*>(block_.on_device()) + index; }
  size_t scalar_words() const { return words_ - 5; }
  size_t update_word() const { return words_ - 2; }
  void launch_kernels() const;

  Device& device_;
  Optimizer& optimizer_;
  Optimizer::Place place_;
  size_t words_;
  Buffer block_;
  DeviceGraph graph_;
  int64_t launched_ = 0;         ///< without the graph
  int64_t graph_of_config_ = 0;  ///< Optimizer::config_version() when it was captured
};

}  // namespace ingot
