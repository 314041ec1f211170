// This process among the ranks of a run: its world, and the groups that [parallel] of the recipe lays over
// it.
#pragma once
#include <memory>

#include "comm/world.h"
#include "parallel/rank_groups.h"
#include "train/recipe.h"

namespace ingot {

class RunRanks {
 public:
  /// `world` must outlive this; nullptr: this rank alone. Throws Error, with the arithmetic, where the ranks
  /// of the world do not tile the grid. Called by all ranks.
  /// `supposed`: of plans.
  explicit RunRanks(const Recipe& recipe, World* world = nullptr, const SupposedData& supposed = {});

  World& world() const { return *world_; }
  const RankGroups& groups() const { return *groups_; }
  GroupMaker group_maker() const;
  bool leads() const { return groups_->leads(); }
  /// The recipe as these ranks run it: parallel.data as the grid has it, and batches that divide among them,
  /// with a warning for each batch that had to change. Error where the work cannot be divided, or where the
  /// ranks do not have the same program and recipe. Called by all ranks.
  Recipe fitted(Recipe recipe) const;

 private:
  std::unique_ptr<World> alone_;  ///< where no world was given
  World* world_;
  std::unique_ptr<RankGroups> groups_;
};

/// The same recipe without [parallel]: what plans and dumps of one process take.
Recipe for_one_rank(Recipe recipe);

}  // namespace ingot
