// The training time of a run: the time of its steps with their waits for data, standing still during
// validation, samples and saves. And the targets of its phases: the step and the training time at which the
// validation loss of a source first was at most target_loss. Both are in the metrics and continue from
// them.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "report/metrics.h"
#include "train/recipe.h"

namespace ingot {

class TrainingClock {
 public:
  /// What the rows of a run say, as text that ranks can agree on.
  static std::string state_of(const std::vector<MetricRow>& rows);
  void restore(const std::string& state);

  double seconds() const { return seconds_; }
  /// Adds a step; sets "training_seconds".
  void count(double step_seconds, MetricRow& row);
  /// Whether a row with validations reaches the phase's target for the first time; then sets
  /// "target/<phase>/training_seconds".
  bool reaches(const PhaseConfig& phase, MetricRow& row);
  /// The phase that ended the run at its target; nullptr: none did.
  const PhaseConfig* ended_by(const std::vector<PhaseConfig>& phases) const;

 private:
  double seconds_ = 0;
  std::set<std::string> reached_;  ///< names of phases
};

}  // namespace ingot
