// How a tape reaches parameters: where their gradients go, and who brings values whose memory comes and goes.
#pragma once
#include "tape/op.h"

namespace ingot {

/// Receives parameter gradients. Parameters are named by the index that Tape::parameter was called with.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  /// False: the parameter is frozen, nothing is computed for it.
  virtual bool wants(int parameter) = 0;
  /// Where the next contribution goes, with accumulate set unless it is the first one of the step.
  virtual GradSlot slot(int parameter) = 0;
  /// The last contribution of this tape to the parameter has run (or been skipped).
  virtual void finished(int parameter) = 0;
};

/// Brings parameters whose memory comes and goes.
class ParameterGatherer {
 public:
  virtual ~ParameterGatherer() = default;
  /// An op is about to read the parameter's compute value; that and the parameters of the op that ran last stay valid until
  /// an op of another part of the model runs.
  virtual void use(int parameter) = 0;
};

}  // namespace ingot
