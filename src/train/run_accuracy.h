// What a run measures of itself to stand beside what was predicted (report/prediction.h): steps by phase,
// saves, and at the end the memory of every rank.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/writer.h"
#include "comm/communicator.h"
#include "report/prediction.h"
#include "train/preflight.h"

namespace ingot {

/// What a step of a phase was predicted to take, at the phase's first batch size.
struct StepForecast {
  double seconds = 0;   ///< 0: not predicted
  std::string largest;  ///< the purpose with the most of it, in words
  std::string missing;  ///< why there is none
};

/// Not thread-safe.
class RunAccuracy {
 public:
  /// Call once data are prepared and the machine is measured: the memory that these took is not the run's.
  /// Where the system cannot restart its count, a process that never needs more than until then says nothing.
  void prepared();
  /// By phase of the recipe.
  void expect(std::vector<StepForecast> steps) { expected_ = std::move(steps); }
  /// A step of a phase at its first batch size. The first kWarmUp of a start are left out: they touch memory
  /// for the first time.
  void count_step(size_t phase, double seconds);
  void count_pause(double seconds) { pauses_.push_back(seconds); }
  void count_save(const SaveReport& report);
  /// Collective: the entries of all ranks, the same on each. `names`: of the phases.
  std::vector<Prediction> compare(const Preflight& plan, std::span<const std::string> names,
                                  Communicator& world) const;

  static constexpr int kWarmUp = 2;
  static constexpr size_t kKept = 1000;  ///< steps of a phase, the newest

 private:
  struct Steps {
    std::vector<double> seconds;
    size_t next = 0;  ///< that is replaced once there are kKept
  };
  std::vector<StepForecast> expected_;
  std::map<size_t, Steps> steps_;
  int warm_up_ = 0;
  std::vector<double> pauses_, writes_;
  int64_t saved_bytes_ = 0, saved_step_ = -1, prepared_peak_ = 0;
};

}  // namespace ingot
