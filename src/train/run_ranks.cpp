// See run_ranks.h.
#include "train/run_ranks.h"

#include "base/log.h"
#include "train/group_check.h"
#include "train/run_layout.h"

namespace ingot {

RunRanks::RunRanks(const Recipe& recipe, World* world)
    : alone_(world == nullptr ? self_world() : nullptr), world_(world == nullptr ? alone_.get() : world) {
  groups_ = std::make_unique<RankGroups>(grid_of(recipe.parallel, world_->ranks()), world_->rank(),
                                         group_maker(), rank_options(recipe));
}

GroupMaker RunRanks::group_maker() const {
  return [world = world_](std::string name, const std::vector<int>& members) {
    return world->group(std::move(name), members);
  };
}

Recipe RunRanks::fitted(Recipe recipe) const {
  recipe.parallel.data = groups_->batch_ranks();
  require_same_program(groups_->world(), recipe);
  for (const std::string& change : recipe.fit_batches())
    if (leads()) log::warn("{}", change);
  require_shares(recipe);
  return recipe;
}

Recipe for_one_rank(Recipe recipe) {
  recipe.parallel = {};
  return recipe;
}

}  // namespace ingot
