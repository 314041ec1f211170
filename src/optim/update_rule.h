// What an optimizer is to the training loop: the state it wants for each parameter, and one update of many.
//
// State may have any shape and number per parameter: moments like the weights, a row's second moment, the two
// factors of a matrix preconditioner. The optimizer (optimizer.h) owns the memory, names it in checkpoints
// and counts it; a rule keeps none of its own besides scratch.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "optim/groups.h"
#include "optim/param.h"

namespace ingot {

struct OptimizerConfig;

/// One tensor of state: zero before the first step.
struct StateSlot {
  std::string name;  ///< "exp_avg"; the checkpoint has it as "PARAMETER.exp_avg"
  Shape shape;
  MomentStorage storage = MomentStorage::f32;
};

/// One parameter of an update; `state` holds its slots in order.
struct RuleTensor {
  const ParamView* param;
  std::span<const Moment> state;
  double lr;
  double weight_decay;
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual std::vector<StateSlot> slots(const ParamView& param) const = 0;
  /// Update number `step` (from 0) of all tensors; one UpdateStat each. Results do not depend on threads.
  virtual std::vector<UpdateStat> step(std::span<const RuleTensor> tensors, int64_t step,
                                       double grad_scale) = 0;
  /// Floating-point operations of one update; element-wise work is not counted.
  virtual double flops(const ParamView&) const { return 0; }
};

/// The rule of a kind, for a run of `total_steps`. Throws Error for a bad config.
std::unique_ptr<UpdateRule> make_rule(OptimizerKind kind, const OptimizerConfig& config, int64_t total_steps);
using RuleMaker =
    std::function<std::unique_ptr<UpdateRule>(OptimizerKind, const OptimizerConfig&, int64_t total_steps)>;

}  // namespace ingot
