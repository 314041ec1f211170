// All ranks of a run as a dry run: those that are alike are planned once.
#pragma once
#include <string>
#include <vector>

#include "plan/rank_plan.h"
#include "report/table.h"

namespace ingot {

/// Ranks with the same parts: the first of them is planned.
struct RankClass {
  std::vector<int> ranks;  ///< ascending
  RankPlan plan;
};

struct RunPlan {
  Recipe recipe;
  PlanFor what;
  std::vector<RankClass> classes;  ///< by their first rank; they tile the ranks
  std::vector<std::string> layout, warnings;
  ParameterCounts parameters;
  int64_t checkpoint_bytes = 0;  ///< of the whole model, on disk
  double model_flops = 0;        ///< of a step, all ranks
  double flops = 0;              ///< as run: with recomputation and attention's second scores

  /// Of a rank; -1: the fullest.
  const RankClass& class_of(int rank) const;
  /// The one whose ranks need the most memory.
  const RankClass& fullest() const;
  int64_t tokens() const { return classes.front().plan.tokens; }
};

/// The recipe with one of its phases alone. Throws Error, which lists them, where it has none of that name.
Recipe only_phase(Recipe recipe, const std::string& name);

/// The ranks of a recipe by what they hold: pipeline stage, bytes of weights, gradients and state, share of a
/// checkpoint. No step is planned.
std::vector<std::vector<int>> rank_classes(const Recipe& recipe, const PlanFor& what);

/// Plans all ranks. The recipe names a vocabulary. Throws Error as PaperRank and check_ranks() do.
RunPlan plan_ranks(const Recipe& recipe, const PlanFor& what);

/// The first rank of each stage, for all of it: what advice and forecasts need, at a rank a stage. Parameters
/// are not counted.
RunPlan plan_stages(const Recipe& recipe, int ranks);

/// For a terminal: one line a class, then the fullest rank, or `rank`, in full.
std::string to_text(const RunPlan& plan, int rank = -1);
/// A row a class: memory in GiB, work and messages of a step.
Table class_table(const RunPlan& plan);
std::string to_json(const RunPlan& plan);

}  // namespace ingot
