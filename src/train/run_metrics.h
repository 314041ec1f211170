// What a run shows Prometheus (`ingot run --metrics`): the numbers of its newest line of the log. The run
// publishes them and trains; the thread of the server makes the page. Thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "report/metrics.h"

namespace ingot {

/// A run at one moment.
struct RunSnapshot {
  int64_t step = 0;  ///< the last complete one
  int64_t total_steps = 0;
  std::optional<MetricRow> row = {};  ///< of the step; none before the first one of a start
  double left_seconds = 0;            ///< to the end of the run; 0: unknown
  double step_gflop = 0;              ///< of the step's passes, on the leading rank
  double peak_gflops = 0;             ///< per second, of its machine; 0: unknown
  int64_t checkpoint_step = -1;       ///< of the newest complete one; -1: none
  double checkpoint_wall = 0;         ///< seconds since 1970 at its end
};

class RunMetrics {
 public:
  void publish(RunSnapshot snapshot);
  /// The page, of the newest snapshot and with ages as of now. Names are in docs/guard.md.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  RunSnapshot now_;                           // guarded by mutex_, as all below
  double published_ = 0;                      // monotonic seconds; 0: never
  std::map<std::string, double> validation_;  // newest loss by source
};

}  // namespace ingot
