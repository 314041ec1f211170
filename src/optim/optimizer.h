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
  Optimizer(OptimizerConfig config, std::vector<ParamView> params, const OptimizerRun& run = {},
            Backing backing = Backing::memory);

  /// One update of every parameter from its gradient. The factors must be finite.
  void step(const StepArgs& args);

  /// Rates, decays and momenta of the steps from now on; groups and state stay as they are. Error where a
  /// rule would want state that there is none for.
  void change(const OptimizerConfig& config);
  /// All state is zero again, as before the first step.
  void reset();

  const OptimizerConfig& config() const { return config_; }
  std::span<const ParamView> params() const { return params_; }
  std::span<const ParamGroup> groups() const { return groups_; }
  /// Of the last step, one per parameter; zeros before the first.
  std::span<const UpdateStat> update_stats() const { return stats_; }
  /// Number of steps made.
  int64_t steps() const { return steps_; }
  /// Bytes of state (without scratch).
  int64_t state_bytes() const;
  /// Floating-point operations of one step's matrix work (Newton-Schulz); element-wise work is not counted.
  double update_flops() const;
  /// The resolved table of groups, for people.
  std::string describe() const { return describe_groups(params_, groups_); }

  /// Visits the state in a fixed order: "optimizer.step" (i64), then per parameter its slots as name + "." +
  /// slot (".exp_avg", ".exp_avg_sq", ".exp_avg_slow", ".momentum"). Loading writes through the same tensors.
  void for_each_state(const std::function<void(const std::string& name, const Tensor& tensor)>& fn);
  /// The slots alone, with their parameters.
  void for_each_slot(
      const std::function<void(const ParamView& param, const std::string& slot, const Tensor& tensor)>& fn);
  /// "optimizer.step".
  Tensor step_counter() { return Tensor::of(&steps_, Shape{}); }

 private:
  /// State of one parameter.
  struct State {
    std::vector<StateSlot> slots;
    std::vector<StoredValues> moments;
  };
  void check_params() const;
  void check_whole() const;
  void lay_out_state(uint64_t seed, Backing backing);
  std::vector<UpdateStat> step_rule(const std::string& name, const StepArgs& args);

  OptimizerConfig config_;
  int64_t total_steps_ = 0;
  std::vector<ParamView> params_;
  std::vector<ParamGroup> groups_;
  std::vector<UpdateStat> stats_;
  std::map<std::string, std::unique_ptr<UpdateRule>> rules_;  ///< those that some group has
  std::vector<State> state_;                                  // per parameter, in memory_
  Buffer memory_;
  int64_t steps_ = 0;
};

}  // namespace ingot
