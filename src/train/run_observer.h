// Watches a run step by step: which part of a step it is in, and every tensor and op of its passes.
#pragma once
#include "tape/tape.h"

namespace ingot {

/// What a run does: the parts of a step, then what may follow one.
enum class StepPart {
  data,       ///< waits for the batch of the step
  passes,     ///< forward and backward; the TapeObserver sees every op
  optimizer,  ///< gradient norm, and what follows from it
  update,     ///< the optimizer updates the weights; router biases
  records,    ///< validation, metrics, samples
  save,       ///< copies a checkpoint, which a thread of the writer writes meanwhile
  replay,     ///< makes the gradient of another rank's share of the batch, before the passes, to compare
};

/// Called from the run's own thread.
class RunObserver : public TapeObserver {
 public:
  virtual void enters(StepPart part) = 0;
  /// False: ops and tensors may go unseen, so that passes on a device are graphs.
  virtual bool wants_ops() const { return true; }
};

}  // namespace ingot
