// Is a task fit to decide? Scores of several arms (recipes), seeds and steps say how steadily a task rises,
// how much a seed moves it, how far it is from guessing, and whether it ranks arms alike from checkpoint to
// checkpoint ([Playbook] EVB-4). Pure functions; thread-safe.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace ingot {

/// A row of a score table.
struct ScoreRow {
  std::string task, arm;
  int64_t seed = 0, step = 0;
  double score = 0, chance = 0;
};

struct TaskQuality {
  std::string task;
  int64_t arms = 0, seeds = 0, steps = 0;
  /// Spearman's correlation of score and step, mean over arms and seeds.
  std::optional<double> monotonicity;
  /// Deviation over seeds of the score at the last step, root of the mean square over arms.
  std::optional<double> seed_noise;
  /// Mean score at the last step less chance, in units of seed_noise.
  std::optional<double> signal;
  /// Kendall's tau of the arms' ranking at a step and at the next, mean over the second half of the steps.
  std::optional<double> ranking;
  /// What speaks against deciding by the task; empty: nothing.
  std::vector<std::string> faults;
  bool decides() const { return faults.empty(); }
};

/// What a task must reach to decide.
constexpr double kLeastMonotonicity = 0.5, kLeastSignal = 3, kLeastRanking = 0.5;

/// Tasks in order of appearance. Error where a (task, arm, seed, step) is there twice or a score is not
/// finite.
std::vector<TaskQuality> judge_tasks(const std::vector<ScoreRow>& rows);

/// A table with the columns task,arm,seed,step,score and, if known, chance. Errors name line and column.
std::vector<ScoreRow> read_score_table(const std::string& text, const std::string& path);

/// Ranks from 1, equal values share the mean of theirs; their correlation; Kendall's tau-a.
double spearman(const std::vector<double>& a, const std::vector<double>& b);
double kendall(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace ingot
