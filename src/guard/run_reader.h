// Reads what a run publishes into an observation: status/rank-<r>.json, failure.json, checkpoints, and what
// the job printed. Torn, foreign, huge or future-dated files are as good as none: they never throw.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "guard/observation.h"

namespace ingot::guard {

class RunReader {
 public:
  explicit RunReader(std::string folder) : folder_(std::move(folder)) {}
  /// Fills all but the clocks, the state and the exit code of the job. Files of other starts are ignored.
  /// `seen.now` and `seen.job` are set before: ranks of a job that has ended do not grow older.
  void read(Observation& seen, int64_t start, const std::string& log_path);
  /// When the ranks had the ages that read() told at `now`.
  double ages_at(double now) const { return std::min(now, ended_); }

  /// Fills checkpoints and their age alone. Those with a manifest count; the run itself checks what it opens.
  void read_checkpoints(Observation& seen) const;

 private:
  void read_status(Observation& seen, int64_t start);
  void read_log(Observation& seen, const std::string& path);
  struct Known {
    std::string text;
    double since = 0;  // when this text was first seen, by the guard's clock
  };
  const std::string folder_;
  static constexpr double kNever = 1e300;
  std::map<std::string, Known> known_;
  double ended_ = kNever;  // when the end of the job was first seen
  std::string log_path_;
  uint64_t log_read_ = 0;
};

}  // namespace ingot::guard
