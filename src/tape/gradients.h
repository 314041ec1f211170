// The gradients of a tape's values: where a contribution goes, when a buffer is freed. Internal to the tape.
#pragma once
#include "tape/transfers.h"

namespace ingot {

class Gradients {
 public:
  Gradients(TapeState& state, Transfers& transfers)
      : slots_(state.slots),
        transfers_(transfers),
        sink_(state.options.sink),
        copies_(state.options.copies_leaves) {}

  /// See Tape::seed and Tape::gradient.
  void seed(int32_t id, const Tensor& cotangent);
  Tensor gradient(int32_t id);

  /// Where the next contribution to the value's gradient goes; not wanted if the value requires none.
  GradSlot next_contribution(int32_t id);
  /// The value's contributions are complete by one; the sink learns when a parameter's are.
  void contributed(int32_t id);
  /// Frees the gradient, at the latest when no pending transfer sends it any more.
  void release(int32_t id);
  void on_unpinned(int32_t id);

 private:
  Slots& slots_;
  Transfers& transfers_;
  GradientSink* const sink_;
  const bool copies_;  ///< cotangents of the host
};

}  // namespace ingot
