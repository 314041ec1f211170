// Facts from observations: what can only be seen over time (silence, slow windows, dips, starts without
// progress) and which nodes the signs point to. Every observation may be torn or foreign; none stops it.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "guard/decide.h"
#include "guard/observation.h"

namespace ingot::guard {

class FactTracker {
 public:
  /// A rank, or a node's slowest one, that computes longer than this times the median is slow.
  static constexpr double kSlow = 1.15;
  /// Takes the next observation, in the order of time.
  Situation look(const Observation& seen);
  /// Seconds (of Observation::now) of the last step or sign of progress.
  double last_progress() const { return last_progress_; }
  /// Speed of now over the usual one; 1: unknown.
  double throughput() const { return throughput_; }
  JobState job() const { return job_; }
  /// For a guard that continues where another one ended.
  void resume(int64_t start, int64_t highest_step, int64_t idle_restarts, double now);
  int64_t idle_restarts() const { return idle_restarts_; }
  int64_t highest_step() const { return highest_; }

 private:
  void look_at_progress(const Observation& seen, Facts& facts);
  void look_at_speed(const Observation& seen, Facts& facts);
  void look_at_nodes(const Observation& seen, Situation& s);
  void look_at_clock(const Observation& seen, Facts& facts);

  struct OfStart {
    int64_t step = -1;
    int64_t window_step = -1;  // with which the newest window of the run ended
    int64_t slow_steps = 0, slow_windows = 0, spike_steps = 0;
    Suspect slowest = {};
    Facts log = {};  // only its lines
  };
  bool first_ = true;
  int64_t start_ = 0, highest_ = -1, idle_restarts_ = 0;
  OfStart of_start_;
  bool new_window_ = false;  // this look is the first at it: what is counted in windows counts
  JobState job_ = JobState::absent;
  double last_progress_ = 0, throughput_ = 1;
  std::deque<double> usual_;  // seconds of a step, newest last
  double usual_step_ = 0;     // their median; 0: unknown
  bool dipped_ = false;
  std::deque<double> dips_;  // when they ended
  double last_now_ = 0, last_wall_ = 0, jumped_ = -1e9, jump_ = 0;
};

}  // namespace ingot::guard
