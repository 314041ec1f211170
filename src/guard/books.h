// The books of a run's life: every millisecond since the guard began has exactly one cause, so the causes add
// up to the wall time, exactly. Training counts as kept until the job falls back to an earlier step; what it
// did after that step then becomes lost; within a stretch steps take the same time. Single-threaded.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/enum.h"

namespace ingot::guard {

enum class Cause : uint8_t {
  kept,        ///< training that the run still has
  lost,        ///< training that a restart made again
  checkpoint,  ///< pauses for saving
  detection,   ///< from the last progress to the decision
  stop,
  waiting,  ///< for a node, or for a fault to pass
  burn_in,
  start,
  load,
  slow,    ///< what a slow step took beyond the usual
  replay,  ///< repeating steps to compare bits
  person,
  idle
};
constexpr auto enum_names(Cause) {
  return names_in_order<Cause>("kept", "lost", "checkpoint", "detection", "stop", "waiting", "burn_in",
                               "start", "load", "slow", "replay", "person", "idle");
}

class Books {
 public:
  Books() = default;
  explicit Books(int64_t now_ms) : begin_(now_ms), until_(now_ms) {}
  /// The time from the last entry up to `until_ms` had this cause (not kept or lost: see train). Times before
  /// the last entry are ignored, so a clock that is set back books nothing twice.
  void spend(Cause cause, int64_t until_ms);
  /// The time up to `until_ms` was training that ended at `step`.
  void train(int64_t until_ms, int64_t step);
  /// The run continues from `step`: training after it is lost.
  void fall_back(int64_t step);
  /// A fault of this kind was found and mended after so many seconds.
  void count_fault(const std::string& rule, double detect_seconds, double recover_seconds,
                   int64_t lost_steps);

  int64_t total_ms() const { return until_ - begin_; }
  int64_t of_ms(Cause cause) const { return spent_[static_cast<size_t>(cause)]; }
  /// Kept over all; 1 for an empty book.
  double goodput() const;
  int64_t step() const { return step_; }
  int64_t lost_steps() const { return lost_steps_; }
  int64_t until_ms() const { return until_; }

  struct Faults {
    int64_t count = 0, lost_steps = 0;
    double detect_seconds = 0, recover_seconds = 0;  ///< sums
  };
  const std::map<std::string, Faults>& faults() const { return faults_; }
  std::string json() const;
  /// Reads json(). Error where it is damaged or its causes do not add up.
  static Books parse(const std::string& json);

 private:
  struct Training {
    int64_t ms = 0, from = 0, to = 0;  ///< of a stretch: its length and the steps that it took, from < to
  };
  int64_t begin_ = 0, until_ = 0;
  std::array<int64_t, enum_count<Cause>> spent_{};
  std::vector<Training> recent_;  // that a fall back may still lose
  std::map<std::string, Faults> faults_;
  int64_t step_ = 0, lost_steps_ = 0;
};

}  // namespace ingot::guard
