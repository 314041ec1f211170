// How a tape reaches parameters: who gets their gradients, and who puts sharded ones into memory.
#pragma once
#include "tape/op.h"

namespace ingot {

/// Receives parameter gradients. Parameters are named by the index that Tape::parameter was called with.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  /// False: the parameter is frozen, and its gradient is not computed.
  virtual bool wants(int parameter) = 0;
  /// Where the next contribution goes; `accumulate` is set unless it is the first one of the step.
  virtual GradSlot slot(int parameter) = 0;
  /// The tape has made, or skipped, its last contribution to the parameter.
  virtual void finished(int parameter) = 0;
};

/// Puts the compute values of sharded parameters into memory.
class ParameterGatherer {
 public:
  virtual ~ParameterGatherer() = default;
  /// An op is about to read the parameter's compute value. It stays in memory, as do the parameters of the op
  /// that ran before, until an op of another layer group runs.
  virtual void use(int parameter) = 0;
};

}  // namespace ingot
