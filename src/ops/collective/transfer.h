// What the ops of ops/collective and ops/context share: groups of one rank, handles of transfers, received
// gradients.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "tape/op.h"

namespace ingot {

/// The communicator, or this thread's group of one rank.
Communicator& group_of(Communicator* comm);

/// "tensor of 4 ranks".
std::string describe_group(const Communicator* comm);

/// The kernels of an op that moves data: one function under both names, as it is exact for every type.
std::vector<Kernel> transfer_kernels(void (*forward)(const OpCall&), void (*backward)(const OpCall&));

template <class Attr>
const Communicator* group_in(const void* attr) {
  return static_cast<const Attr*>(attr)->group();
}
/// The axis rule of an op on the axes of the group that its attributes name (Attr::group()).
template <class Attr>
AxisRule group_rule(AxisTypeSet passes, AxisType from, AxisType to, bool along_sequence = false) {
  return {.passes = passes,
          .along_sequence = along_sequence,
          .on = AxisRule::On::group_axes,
          .change = {from, to},
          .group = group_in<Attr>};
}

/// Leaves the transfer to the caller where the caller can wait (OpCall::pending), else waits.
void finish(const OpCall& call, Pending pending);
/// Waits for all of them, then calls `then`.
Pending all_of(std::vector<Pending> transfers, std::function<void()> then = {});

/// to += from, of one floating type.
void add_tensor(const Tensor& to, const Tensor& from);

/// Lets `receive` fill the slot; one that accumulates receives through `scratch` (as many bytes as the slot).
template <class Receive>
void receive_gradient(const GradSlot& slot, void* scratch, const Receive& receive) {
  if (!slot.accumulate) return receive(slot.tensor);
  const Tensor received(scratch, slot.tensor.shape(), slot.tensor.dtype());
  receive(received);
  add_tensor(slot.tensor, received);
}

}  // namespace ingot
