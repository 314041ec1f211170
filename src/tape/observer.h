// What a tape tells about its executions: to an observer (debug dumps, comparisons, traces) and in a profile.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "tape/node.h"

namespace ingot {

/// One execution of an op's kernel. An op with row_sliced may have several for one node.
struct OpRun {
  const Op& op;
  const Segment& segment;
  Direction direction;
  bool is_recompute;                ///< forward, repeated for backward
  double begin, end;                ///< by monotonic_seconds()
  double flops, bytes, wire_bytes;  ///< as OpCost says; the bytes of a backward pass are touched_bytes()
  const OpCall& call;               ///< as the kernel had it, scratch included
};

/// Is called by the tape's thread. On the null device only of executions and transfers.
class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  /// An execution is over. In the order of execution.
  virtual void ran(const OpRun&) {}
  /// The execution that was told last began a transfer, which continues; the tape waits for it. Numbers are
  /// the tape's.
  virtual void took_off(int32_t) {}
  virtual void landed(int32_t) {}
  /// False: tensor() is never called. Naming tensors takes longer than small ops do.
  virtual bool wants_tensors() const { return true; }
  /// A tensor was written. `name` is unique on the tape and the same in every run, e.g.
  /// "layer3.attention.linear#1.y" or "layer3.attention.linear#1.d_x".
  virtual void tensor(const std::string& name, const Tensor& value) = 0;
};

/// Time and work of one op, added up over tapes. Arrays are indexed by Direction.
struct OpProfile {
  int64_t calls = 0;  ///< forward, recomputation included
  double seconds[3] = {0, 0, 0};
  double flops[3] = {0, 0, 0};
  double wire_bytes = 0;  ///< sent to other ranks
};
/// By the op's name; "waiting" has the time that the tape waited for transfers.
using TapeProfile = std::map<std::string, OpProfile>;

}  // namespace ingot
