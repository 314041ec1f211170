// What a rank of a run does now: status/rank-<r>.json in the run's folder, which the rank writes every
// second, and programs that watch the run read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace ingot {

struct RankStatus {
  int64_t rank = 0;
  std::string host;
  int64_t start_step = -1;    ///< that this start of the run continues from; -1: unknown
  int64_t save_every = 0;     ///< steps between two checkpoints; 0: unknown
  int64_t step = -1;          ///< the last complete one; -1: none
  std::string part = {};      ///< of a step, that the rank is in
  double silent_seconds = 0;  ///< since it has ended a step
  double step_seconds = 0;    ///< of a step, as all below means of the steps since the last file; 0: unknown
  double busy_seconds = 0;    ///< without the waits for data and for other ranks; 0: unknown
  double data_wait = 0;       ///< share of a step
  double saved_seconds = 0;   ///< pauses for checkpoints in this start
  bool spike = false;         ///< the loss is far above its mean

  /// {"format": 1, "start", "rank", "host", "pid", "time", and the rest by their names}. `start`: the number
  /// that a guard gave this start of the run; 0: none.
  std::string json(int64_t start) const;
  /// Reads json(). Nothing where the text is none, or is of another start; it never throws.
  static std::optional<RankStatus> parse(const std::string& text, int64_t start);
};

}  // namespace ingot
