// What a run predicted of itself beside what it measured: one entry a quantity, in each start of run.json.
// The prediction is made before the first step (train/preflight.h, plan/run_forecast.h), the measurement is
// the run's own. Pure functions.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/enum.h"
#include "report/table.h"

namespace ingot {

enum class Predicted {
  memory,      ///< bytes: the most that a rank's process had resident
  step,        ///< seconds: the median step of a phase
  checkpoint,  ///< bytes of tensors of all ranks
  pause,       ///< seconds: the median for which a save stops training
  write        ///< seconds: the median from a checkpoint's first byte to its last
};
constexpr auto enum_names(Predicted) {
  return names_in_order<Predicted>("memory", "step", "checkpoint", "checkpoint pause", "checkpoint write");
}

struct Prediction {
  Predicted what = Predicted::memory;
  std::string of;                             ///< "rank 3", "phase 'main'"; empty: the whole run
  std::optional<double> predicted, measured;  ///< bytes or seconds; none: not known
  std::string largest;                        ///< the largest term of what was predicted, in words
  std::string missing;                        ///< why one of the two is not known; empty: both are
  bool in_bytes() const { return what == Predicted::memory || what == Predicted::checkpoint; }
  /// Measured over predicted; none where one of them is not known.
  std::optional<double> ratio() const;
  /// Memory beyond 5 % and 64 MiB of the prediction, or a step beyond 15 % of it.
  bool is_off() const;
};

/// "memory of rank 3", "step".
std::string name_of(const Prediction& p);
/// "1.50 GiB", "84.2 ms"; "not known".
std::string amount_of(const Prediction& p, const std::optional<double>& value);

/// Of entries of one kind the one that is furthest off, with "of 64" where there are others: what a person
/// reads of a run of many ranks.
std::vector<Prediction> worst_of_each(std::span<const Prediction> predictions);

/// Two lines for a log: memory and steps, checkpoints. Entries as worst_of_each() leaves them.
std::vector<std::string> describe(std::span<const Prediction> predictions);
/// One warning for the entry that is furthest off, with its largest term; empty: none is off.
std::string warning_of(std::span<const Prediction> predictions);

/// What, predicted, measured, their ratio, and what there is to say.
Table prediction_table(std::span<const Prediction> predictions, const std::string& title);

}  // namespace ingot
