// The operations between ranks that a tape has begun and not yet waited for. What they send stays in memory
// and what they receive is not read until they are complete. Internal to the tape.
#pragma once
#include <exception>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "tape/kernel_call.h"

namespace ingot {

struct Transfer {
  Direction direction = Direction::forward;       ///< forward: it moves values; backward_input: gradients
  std::vector<int32_t> sent = {}, received = {};  ///< values, or the values whose gradients move
  int32_t node = -1;             ///< whose tensors observers see once received; -1: a recomputation
  int64_t first_local_row = -1;  ///< Op::first_local_row; -1: none
  Pending pending = {};
  bool complete = false;
};

class Transfers {
 public:
  /// Is called when the last pending transfer that sends a value (or its gradient) is complete.
  using OnUnpinned = std::function<void(int32_t id, Direction direction)>;
  Transfers(TapeState& state, const KernelCalls& kernels, OnUnpinned on_unpinned)
      : slots_(state.slots), kernels_(kernels), on_unpinned_(std::move(on_unpinned)) {}

  void begin(Transfer transfer);
  /// Waits for a transfer; -1 or one that is complete: returns at once.
  void complete(int32_t transfer);
  void complete_all();
  /// Throws nothing: rethrow_failure() throws it later.
  void complete_all_noexcept() noexcept;
  /// Completes what the value arrives with and what sends it. Throws nothing, as well.
  void detach(const Slot& slot) noexcept;
  void rethrow_failure() const;

  const Transfer& operator[](int32_t transfer) const { return transfers_[static_cast<size_t>(transfer)]; }
  /// Whether the tape has begun any, complete or not.
  bool any() const { return !transfers_.empty(); }
  /// A value's tensor, complete.
  Tensor received(int32_t id);

 private:
  void complete_noexcept(int32_t transfer) noexcept;

  Slots& slots_;
  const KernelCalls& kernels_;
  const OnUnpinned on_unpinned_;
  std::vector<Transfer> transfers_;
  std::exception_ptr failure_;
};

}  // namespace ingot
