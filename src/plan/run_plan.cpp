// See run_plan.h.
#include "plan/run_plan.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "train/rank_check.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

/// What ranks that plan alike have in common.
using Signature = std::tuple<int, int64_t, int64_t, int64_t, int64_t, int64_t>;

Signature signature_of(const TrainEngine& engine) {
  return {engine.pipeline().stage(),
          engine.model().bytes(),
          engine.gradients().bytes(),
          engine.optimizer().state_bytes(),
          engine.gradients().transient_bytes(),
          engine.owned_elements()};
}

/// The check of collectives takes minutes for more.
constexpr int kMostChecked = 64;

/// Plans ranks that are alike by the first of them.
void add_class(RunPlan& plan, std::vector<int> ranks) {
  const PaperRank first(plan.recipe, plan.what, ranks.front());
  plan.classes.push_back({std::move(ranks), plan_rank(first)});
  const RankClass& c = plan.classes.back();
  const auto count = static_cast<int64_t>(c.ranks.size());
  plan.model_flops += static_cast<double>(count) * c.plan.work.model_flops;
  plan.flops += static_cast<double>(count) * c.plan.work.flops();
  plan.checkpoint_bytes += count * c.plan.memory.checkpoint;
}

}  // namespace

Recipe only_phase(Recipe recipe, const std::string& name) {
  std::string names;
  for (const PhaseConfig& s : recipe.phases) {
    if (s.name != name) {
      names += fmt::format("{}'{}'", names.empty() ? "" : ", ", s.name);
      continue;
    }
    PhaseConfig only = s;
    only.continues = false;
    recipe.phases = {std::move(only)};
    return recipe;
  }
  throw Error(fmt::format("the recipe has no phase '{}'", name), "its phases: " + names);
}

const RankClass& RunPlan::class_of(int rank) const {
  if (rank < 0) return fullest();
  for (const RankClass& c : classes)
    if (std::binary_search(c.ranks.begin(), c.ranks.end(), rank)) return c;
  throw Error(fmt::format("--rank {}: the plan has the ranks 0 to {}", rank, what.ranks - 1),
              "name one of them");
}

const RankClass& RunPlan::fullest() const {
  return *std::max_element(classes.begin(), classes.end(), [](const RankClass& a, const RankClass& b) {
    return a.plan.memory.total() < b.plan.memory.total();
  });
}

std::vector<std::vector<int>> rank_classes(const Recipe& recipe, const PlanFor& what) {
  std::map<Signature, std::vector<int>> alike;
  for (int rank = 0; rank < what.ranks; ++rank)
    alike[signature_of(PaperRank(recipe, what, rank).engine())].push_back(rank);
  std::vector<std::vector<int>> classes;
  for (auto& [signature, ranks] : alike) classes.push_back(std::move(ranks));
  std::sort(classes.begin(), classes.end());
  return classes;
}

RunPlan plan_ranks(const Recipe& recipe, const PlanFor& what) {
  RunPlan plan{.recipe = recipe, .what = what};
  const std::string unchecked = what.ranks <= kMostChecked
                                    ? check_ranks(recipe, what.ranks)
                                    : fmt::format("the collectives of more than {} ranks", kMostChecked);
  if (!unchecked.empty()) plan.warnings.push_back("not checked: " + unchecked);
  for (std::vector<int>& ranks : rank_classes(recipe, what)) add_class(plan, std::move(ranks));
  const PaperRank first(recipe, what, 0);
  plan.layout = describe_layout(first.engine().recipe());
  plan.warnings.insert(plan.warnings.end(), first.changes().begin(), first.changes().end());
  plan.parameters = count_parameters(Decoder(recipe.model));
  return plan;
}

RunPlan plan_stages(const Recipe& recipe, int ranks) {
  RunPlan plan{.recipe = recipe, .what = {ranks, 1}};
  const int stages = static_cast<int>(recipe.parallel.pipeline);
  std::vector<int> alike(static_cast<size_t>(std::max(1, ranks / stages)));  // PaperRank refuses none
  for (int stage = 0; stage < stages; ++stage) {
    std::iota(alike.begin(), alike.end(), stage * (ranks / stages));
    add_class(plan, alike);
  }
  return plan;
}

}  // namespace ingot
