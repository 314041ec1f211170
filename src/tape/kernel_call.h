// Running one kernel of an op, and reporting it: time and work to the profile, runs and tensors to the
// observer. Internal to the tape.
#pragma once
#include <span>
#include <string>

#include "tape/state.h"

namespace ingot {

class KernelCalls {
 public:
  explicit KernelCalls(TapeState& state) : state_(state) {}

  /// Runs the kernel of that direction, with scratch from the arena; on the null device the op's dry run.
  void run(const Node& node, OpCall& call, Direction direction);
  /// Runs both nodes of a pair, of which each call has the inputs and outputs, forward by one kernel. All of
  /// the time counts as the first's.
  void run(const Kernel& kernel, const Node& first, const OpCall& first_call, const Node& second,
           const OpCall& second_call);
  /// A wait for a transfer that began at `begin`, by monotonic_seconds(), is over.
  void waited(Direction direction, double begin) const;
  /// Tells the observer that a transfer began, or is over.
  void took_off(int32_t transfer) const;
  void landed(int32_t transfer) const;
  /// Whether somebody looks at tensors.
  bool are_watched() const;
  /// The tensors that the node wrote: forward its outputs, backward the wanted gradients in the order of its
  /// inputs. Error if one is not finite and the tape checks that.
  void wrote(int32_t node, Direction direction, std::span<const Tensor> tensors) const;

 private:
  /// What other ranks wait for, without waiting.
  void move_along() const;
  bool is_timed() const;
  void run_kernel(const Kernel& kernel, const Op& op, const OpCall& call, Direction direction) const;
  void account(const Node& node, const OpCall& call, Direction direction, double begin) const;
  OpCost cost_of(const Node& node, const OpCall& call, Direction direction) const;
  std::string tensor_name(int32_t node, const std::string& slot) const;
  void check_finite(int32_t node, Direction direction, std::span<const Tensor> tensors) const;

  TapeState& state_;
  HeapArena host_;  ///< of what kernels on the host read and write for a device
};

}  // namespace ingot
