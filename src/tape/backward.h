// The backward pass of a tape, segment by segment, last to first; weight gradients may wait for a schedule.
#pragma once
#include <cstdint>
#include <deque>

#include "tape/tape.h"

namespace ingot {

/// One per tape, which must outlive it; no op may be applied any more. Not thread-safe.
///
/// Weight gradients are computed with their node unless they wait in a queue: with
/// TapeOptions::defer_weight_gradients until run_deferred(); while the tape has transfers until something
/// waits for one, at the latest until the layer's end. Either way, contributions to a parameter are added in
/// reverse tape order.
class Backward {
 public:
  explicit Backward(Tape& tape);
  /// Runs the next segment; false when there is none left.
  bool advance();
  /// The segment that advance() would run; nullptr: none is left.
  const Segment* next() const;
  /// Runs all that is left, and the deferred weight gradients.
  void run();

  /// Weight gradients in the queue.
  size_t deferred() const { return deferred_.size(); }
  /// Runs the oldest `count` (all by default) of them.
  void run_deferred(size_t count = SIZE_MAX);

 private:
  void run_node(int32_t index);
  void run_pass(int32_t index, Direction direction);
  void finish_pass(const Node& node, Direction direction);
  bool awaits_transfer(const Node& node) const;
  bool overtakes_queue(const Node& node) const;
  void count_deferred(const Node& node, int change);

  Tape::Parts& parts_;
  int32_t segment_;               ///< the next one
  std::deque<int32_t> deferred_;  ///< nodes
};

}  // namespace ingot
