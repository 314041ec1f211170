// What the update of a step reads and writes on a device beside weights, gradients and state, so that host
// code can ask for all of it before it knows what the gradients are. Plain: kernels of GPUs read it too.
#pragma once
#include <cstdint>

namespace ingot {

class KeptLists;    // device/gpu/workspace.h
struct UpdateStat;  // optim/param.h

/// What host code says of a step.
struct StepScalars {
  double lr;  ///< schedule applied
  double grad_scale;
  double step;         ///< its number, from 0
  double balances;     ///< whether biases of routers move: 1 or 0
  double clip_factor;  ///< 0: it follows from the norm
};

/// What the gradients decide.
struct UpdateDecision {
  double made;    ///< 1 where loss and gradients are finite, else 0: nothing changes
  double factor;  ///< on gradients: their scale times the clip factor
};

/// Addresses of the device.
struct DeviceStep {
  const StepScalars* scalars = nullptr;
  const UpdateDecision* decision = nullptr;
  const double* numbers = nullptr;  ///< of a rule: UpdateRule::numbers()
  const double* rates = nullptr;    ///< by parameter: Optimizer::rates()
  UpdateStat* stats = nullptr;      ///< by parameter; written where the update is made
  KeptLists* lists = nullptr;       ///< of the host: where kernels' lists stay; nullptr: nowhere
};

}  // namespace ingot
