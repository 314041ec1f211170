// Running one node forward, for the first time or as a recomputation. Internal to the tape.
#pragma once
#include "tape/gradients.h"

namespace ingot {

class Forward {
 public:
  Forward(TapeState& state, KernelCalls& kernels, Transfers& transfers, Gradients& gradients)
      : state_(state), kernels_(kernels), transfers_(transfers), gradients_(gradients) {}

  /// A value for an op that reads it: a parameter is gathered, a transfer is complete.
  Tensor read(int32_t id);
  /// The inputs for run(). The first input of an op with row_sliced may not have arrived yet.
  std::vector<Tensor> inputs(const Node& node);
  /// Runs the node's op. An op that transfers leaves a pending transfer. Unless it is a recomputation, the
  /// caller records the node next.
  void run(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out, bool is_recompute);

  /// The kernel that runs a pair whose first node this is; nullptr: its two nodes run one after the other.
  const Kernel* kernel_of(const OpPair& pair, const Node& first, std::span<const Tensor> in,
                          std::span<const Tensor> out, const AttrBox& second) const;

 private:
  int32_t row_sliced_transfer(const Node& node) const;
  void run_row_sliced(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out,
                      int32_t transfer);
  std::vector<GradSlot> early_gradients(const Node& node);
  void execute(const Node& node, std::span<const Tensor> in, std::span<const Tensor> out, Pending* pending);

  TapeState& state_;
  KernelCalls& kernels_;
  Transfers& transfers_;
  Gradients& gradients_;
};

}  // namespace ingot
