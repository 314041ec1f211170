// What an optimizer is to the training loop: the state it wants for each parameter, and one update of many.
//
// State may have any shape and number per parameter: moments like the weights, a row's second moment, the two
// factors of a matrix preconditioner. The optimizer (optimizer.h) owns the memory, names it in checkpoints
// and counts it; a rule keeps none of its own besides scratch. (Runs save state of one value per element.)
//
// Recipes choose rules by name: "adamw", "ademamix", "muon", and those that a program registers
// (docs/extend-optimizer.md).
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "optim/param.h"

namespace ingot {

struct DeviceStep;  // optim/device_step.h
struct OptimizerConfig;
struct UpdateKernels;  // optim/update_kernels.h

/// One tensor of state: zero before the first step.
struct StateSlot {
  std::string name;  ///< "exp_avg"; the checkpoint has it as "PARAMETER.exp_avg"
  Shape shape;
  ValueStorage storage = ValueStorage::f32;
};

/// One parameter of an update; `state` holds its slots in order.
struct RuleTensor {
  const ParamView* param;
  std::span<const StoredValues> state;
  double lr;
  double weight_decay;
  int64_t index;  ///< of the parameter in its optimizer
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual std::vector<StateSlot> slots(const ParamView& param) const = 0;
  /// Update number `step` (from 0) of all tensors; one UpdateStat each. Results do not depend on threads.
  virtual std::vector<UpdateStat> step(std::span<const RuleTensor> tensors, int64_t step,
                                       double grad_scale) = 0;
  /// Why no kernels of the device (update_kernels.h) make its update of this parameter, or nullptr: they do.
  virtual const char* refuse_kernels(const ParamView&, DeviceKind) const { return "the rule is host code"; }
  /// What those kernels read that follows from the number of a step, as many for each.
  virtual std::vector<double> numbers(int64_t /*step*/) const { return {}; }
  /// Asks kernels that take every tensor, and that it does not refuse for any, for step(). What stands in
  /// RuleTensor::lr they do not read: DeviceStep has the rates.
  virtual void launch(const UpdateKernels& kernels, std::span<const RuleTensor> tensors,
                      const DeviceStep& step) const;
  /// Most bytes of scratch that step() of all tensors of these parameters takes on the CPU, and keeps.
  virtual int64_t scratch_bytes(std::span<const ParamView* const>) const { return 0; }
  /// Floating-point operations of one update; element-wise work is not counted.
  virtual double flops(const ParamView&) const { return 0; }
  /// Factor on the learning rate, besides the schedule's and the group's.
  virtual double rate_factor() const { return 1; }
  /// muP's factor on the learning rate of a matrix whose fan-in is m times the base model's. An update of a
  /// fixed size per element must shrink by m.
  virtual double width_factor(double m) const { return 1 / m; }
};

/// What a rule can update. elements: any tensor and any part of one. matrices: [r, c] and stacks of them;
/// where ranks divide a matrix, it exchanges the parts itself. whole_matrices: the same, and layouts that
/// divide its matrices are refused.
enum class RuleTakes : uint8_t { elements, matrices, whole_matrices };

/// Makes a rule for a run of `total_steps`. Throws Error for a bad config.
using RuleMaker = std::function<std::unique_ptr<UpdateRule>(const OptimizerConfig&, int64_t total_steps)>;

struct RegisteredOptimizer {
  RuleTakes takes;
  RuleMaker make;
  bool needs_matrices() const { return takes != RuleTakes::elements; }
};

/// Before any recipe is read; not thread-safe. Error for a name that is taken, or that no key can hold.
void register_optimizer(const std::string& name, RuleTakes takes, RuleMaker make);
/// nullptr where there is none.
const RegisteredOptimizer* find_optimizer(const std::string& name);
/// In alphabetical order.
std::vector<std::string> optimizer_names();

}  // namespace ingot
