// A run's scores beside those of a reference at equal tokens: an earlier run, or published scores of another
// model's checkpoints. A run that stays behind is flagged while its loss still looks well ([Playbook] MON-4).
// Pure functions; thread-safe.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "report/metrics.h"

namespace ingot {

/// One score over tokens, ascending.
struct ScoreCurve {
  std::string name;  ///< "spelling/acc", "val/bible/bits_per_byte"
  bool higher_is_better = true;
  std::vector<double> tokens, values;
  std::vector<double> errors;  ///< standard errors; empty where unknown
};

/// The curves of tasks and of validation that a run's metrics have.
std::vector<ScoreCurve> curves_of(const std::vector<MetricRow>& rows);
/// A table with the columns score,tokens,value. Errors name line and column.
std::vector<ScoreCurve> read_reference(const std::string& text, const std::string& path);

struct Comparison {
  std::string name;
  int64_t points = 0;                           ///< of the run, at tokens that the reference spans
  double tokens = 0, value = 0, reference = 0;  ///< at the last of them
  double ahead = 0;     ///< mean of value - reference over the last three; better is positive
  bool behind = false;  ///< at each of the last three, and by more than two standard errors in their mean
};

/// The scores that both have. The reference is interpolated linearly in tokens.
std::vector<Comparison> compare_curves(const std::vector<ScoreCurve>& run,
                                       const std::vector<ScoreCurve>& reference);

}  // namespace ingot
