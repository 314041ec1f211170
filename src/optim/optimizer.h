// The optimizer of a training run: parameters with their groups, flat state, one step over all of them.
//
// Rules (update_rule.h) say how a parameter is updated and which state that needs. The state lies in one flat
// buffer, in parameter order, and is exposed as named tensors for checkpoints: writing the same bytes back
// resumes exactly. A step runs the rules in alphabetical order. Not thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "optim/config.h"
#include "optim/device_step.h"
#include "optim/param.h"
#include "optim/update_rule.h"
#include "tensor/buffer.h"

namespace ingot {

/// What an optimizer must know of its run.
struct OptimizerRun {
  int64_t total_steps = 0;  ///< where Muon's cool-down and AdEMAMix's rise (warmup 0) end
  uint64_t seed = 0;        ///< of stochastic rounding
};

/// What changes from step to step.
struct StepArgs {
  double lr = 0;           ///< schedule applied
  double grad_scale = 1;   ///< 1 / valid tokens of the step, the one division
  double clip_factor = 1;  ///< from clip_factor()
};

class Optimizer {
 public:
  /// Takes parameters as they are (their memory must outlive this). Throws Error for a bad config or pattern,
  /// for two parameters of one name, for a bf16 moment that would stall, and for a matrix in parts whose rule
  /// takes whole matrices.
  /// `device`: where the state may move.
  Optimizer(OptimizerConfig config, std::vector<ParamView> params, const OptimizerRun& run = {},
            Backing backing = Backing::memory, DeviceKind device = DeviceKind::cpu);

  /// One update of every parameter from its gradient. The factors must be finite.
  void step(const StepArgs& args);

  // The same in parts, for a device (optim/device_update.h).

  /// State of one parameter.
  struct State {
    std::vector<StateSlot> slots;
    std::vector<StoredValues> moments;
  };
  /// The parameters and their state, at some addresses.
  struct Place {
    std::vector<ParamView> params;
    std::vector<State> state;
  };
  /// Kernels of a device, by rule; nullptr, or none: the CPU's.
  using RuleKernels = std::map<std::string, const UpdateKernels*>;
  /// Weights and gradients where `params` has them, and state on the device, where it goes.
  Place place_on_device(std::span<const ParamView> params) const;
  /// The state's addresses on the device are those of place_on_device() again, and it is there.
  void move_state_to_device() const { memory_.on_device(); }
  /// Those that make the updates of each rule. Error where select_update_kernels() finds none.
  RuleKernels kernels_on(DeviceKind device) const;
  /// UpdateRule::numbers() of all rules, one after another; as many for each step.
  std::vector<double> numbers(int64_t step) const;
  /// Of each parameter: the learning rate where the schedule says `lr`.
  std::vector<double> rates(double lr) const;
  /// Asks for an update at a place by kernels, or makes it by host code where a rule has none: then this is
  /// code of a kernel, and reads and writes what `step` points to. DeviceStep::numbers: those of all rules.
  void launch_at(Place& place, const RuleKernels& kernels, DeviceStep step);
  /// Counts a step; returns its number, from 0.
  int64_t count_step() { return steps_++; }
  /// The step that was counted last was not made.
  void take_step_back() { --steps_; }
  /// What update_stats() says from now on.
  void take_stats(std::vector<UpdateStat> stats) { stats_ = std::move(stats); }

  /// Rates, decays and momenta of the steps from now on; groups and state stay as they are. Error where a
  /// rule would want state that there is none for.
  void change(const OptimizerConfig& config);
  /// All state is zero again, as before the first step.
  void reset();

  const OptimizerConfig& config() const { return config_; }
  /// Grows with each change().
  int64_t config_version() const { return config_version_; }
  std::span<const ParamView> params() const { return place_.params; }
  std::span<const ParamGroup> groups() const { return groups_; }
  /// Of the last step, one per parameter; zeros before the first.
  std::span<const UpdateStat> update_stats() const { return stats_; }
  /// Number of steps made.
  int64_t steps() const { return steps_; }
  /// Bytes of state (without scratch).
  int64_t state_bytes() const;
  /// Most bytes that step() takes beside it on the CPU, and keeps.
  int64_t scratch_bytes() const;
  /// Floating-point operations of one step's matrix work on a parameter (Newton-Schulz); element-wise work is
  /// not counted.
  double update_flops(size_t param) const;
  /// The resolved table of groups, for people.
  std::string describe() const { return describe_groups(place_.params, groups_); }

  /// Visits the state in a fixed order: "optimizer.step" (i64), then per parameter its slots as name + "." +
  /// slot (".exp_avg", ".exp_avg_sq", ".exp_avg_slow", ".momentum"). Loading writes through the same tensors.
  void for_each_state(const std::function<void(const std::string& name, const Tensor& tensor)>& fn);
  /// The slots alone, with their parameters.
  void for_each_slot(
      const std::function<void(const ParamView& param, const std::string& slot, const Tensor& tensor)>& fn);
  /// "optimizer.step".
  Tensor step_counter() { return Tensor::of(&steps_, Shape{}); }

 private:
  void check_params() const;
  void check_whole() const;
  void lay_out_state(uint64_t seed, Backing backing, DeviceKind device);
  /// The tensors of a rule at a place, for step number `step`.
  std::vector<RuleTensor> tensors_of(const std::string& rule, double lr, Place& place, int64_t step) const;
  /// Makes the update of a rule by host code; `stats`: by parameter.
  void step_rule(const std::string& name, const StepArgs& args, Place& place, int64_t step,
                 UpdateStat* stats);

  OptimizerConfig config_;
  int64_t config_version_ = 0;
  int64_t total_steps_ = 0;
  Place place_;  ///< on the host; state in memory_
  std::vector<ParamGroup> groups_;
  std::vector<UpdateStat> stats_;
  std::map<std::string, std::unique_ptr<UpdateRule>> rules_;  ///< those that some group has
  Buffer memory_;
  int64_t steps_ = 0;
};

}  // namespace ingot
