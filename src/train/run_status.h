// Writes what a rank does now (report/rank_status.h) for programs that watch a run, in a thread of its own,
// so that it is alive while the run's thread is stuck in an op or a message.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "base/file_system.h"
#include "report/rank_status.h"
#include "train/run_observer.h"

namespace ingot {

class RunStatus {
 public:
  static constexpr double kEvery = 1;  ///< seconds between two files
  /// `step`: that this start continues from. The file is written now, every kEvery seconds, and at the end.
  /// `save_every`: steps between two checkpoints; 0: unknown.
  RunStatus(FileSystem& fs, const std::string& folder, int rank, int64_t step, int64_t save_every);
  ~RunStatus();
  RunStatus(const RunStatus&) = delete;
  RunStatus& operator=(const RunStatus&) = delete;

  struct Step {
    int64_t step = 0;
    double seconds = 0;       ///< of the step, the wait for data included
    double wait_seconds = 0;  ///< for data
    double busy_seconds = 0;  ///< without the waits for data and for other ranks; 0: no measure of the rank
    bool spike = false;       ///< its loss is far above the mean
  };
  void done(const Step& step);
  void saved(double seconds);
  void enter(StepPart part);

 private:
  void write();
  FileSystem& fs_;
  const std::string path_;
  const int64_t start_;
  std::mutex mutex_;
  std::condition_variable_any ended_;
  RankStatus told_;  // guarded by mutex_, as all below
  Step sums_;        // of the steps since the last file, `step` counts them
  StepPart part_ = StepPart::data;
  double progressed_ = 0;
  bool warned_ = false;
  std::jthread thread_;
};

}  // namespace ingot
