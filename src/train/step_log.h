// What a run records of a step: the row of its metrics, and the line that people see.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "base/progress.h"
#include "report/metrics.h"
#include "train/engine.h"

namespace ingot {

/// A step that is done, with what the loop around it knows.
struct DoneStep {
  int64_t step = 0, tokens = 0;  ///< so far, this one included
  double lr = 0;
  double seconds = 0, wait_seconds = 0;  ///< of the step with its wait for data; of the wait
  double roofline_seconds = 0;           ///< shortest time that the plan gives the step
  std::optional<double> save_seconds;    ///< of a checkpoint since the last row
};

/// Names of the fields: report/metrics.h. `sources`: names, as the batch numbers them.
MetricRow step_row(const DoneStep& done, const data::Batch& batch, const StepOutcome& outcome,
                   const TapeProfile& profile, const TrainEngine& engine,
                   std::span<const std::string> sources);

/// "step 12/100  loss ...". `left`: seconds to the end of the run.
std::string step_line(const MetricRow& row, int64_t total_steps, double left);

/// Which steps get a line in the log, and how long the rest of the run takes at its recent speed.
class StepLog {
 public:
  /// every: run.log_every. now: monotonic seconds, here and below.
  StepLog(int64_t every, int64_t total_steps, double now);
  /// Counts a step that is done; true: it gets a line of the log. The first, the last and those with a
  /// validation loss always do.
  bool add(const MetricRow& row, double now);
  /// Seconds to the end of the run.
  double left(int64_t step) const;

 private:
  int64_t every_, total_, counted_ = 0;
  bool one_a_minute_;
  double last_line_;
  RecentSpeed speed_;
};

}  // namespace ingot
