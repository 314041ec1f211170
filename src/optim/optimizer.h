// The optimizer of a training run: parameters with their groups, flat fp32 state, one step over all of them.
//
// State lives in three flat buffers (exp_avg and exp_avg_sq of the AdamW parameters, momentum of the Muon
// parameters), in parameter order, and is exposed as named tensors for checkpoints: writing the same bytes
// back resumes exactly. The order of a step is fixed: AdamW tensors, then Muon tensors. Not thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "optim/adamw.h"
#include "optim/groups.h"
#include "optim/muon.h"
#include "optim/param.h"

namespace ingot {

struct OptimizerConfig {
  GroupConfig groups;
  AdamWConfig adamw;
  MuonConfig muon;
  double weight_decay = 0.1;        ///< of groups with decay; decoupled, times the tensor's learning rate
  double muon_lr_multiplier = 1.0;  ///< 1: one rate for both, as RMS matching allows
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
  /// or for two parameters of one name.
  Optimizer(OptimizerConfig config, std::vector<ParamView> params);

  /// One update of every parameter from its gradient. The factors must be finite.
  void step(const StepArgs& args);

  const OptimizerConfig& config() const { return config_; }
  std::span<const ParamView> params() const { return params_; }
  std::span<const ParamGroup> groups() const { return groups_; }
  /// Of the last step, one per parameter; zeros before the first.
  std::span<const UpdateStat> update_stats() const { return stats_; }
  /// Number of steps made.
  int64_t steps() const { return steps_; }
  /// Bytes of state (without scratch).
  int64_t state_bytes() const;
  /// Floating-point operations of one step's Newton-Schulz iterations; element-wise work is not counted.
  double update_flops() const;
  /// The resolved table of groups, for people.
  std::string describe() const { return describe_groups(params_, groups_); }

  /// Visits the state in a fixed order: "optimizer.step" (i64), then per parameter name + ".exp_avg" and
  /// ".exp_avg_sq", or ".momentum". Loading writes through the same tensors.
  void for_each_state(const std::function<void(const std::string& name, const Tensor& tensor)>& fn);

 private:
  void check_params() const;
  void lay_out_state();

  OptimizerConfig config_;
  std::vector<ParamView> params_;
  std::vector<ParamGroup> groups_;
  std::vector<UpdateStat> stats_;
  std::vector<int64_t> offset_;  // per parameter, in the buffers of its optimizer
  FloatBuffer exp_avg_, exp_avg_sq_, momentum_;
  Muon muon_;
  int64_t steps_ = 0;
};

}  // namespace ingot
