// See run_ranks.h.
#include "train/run_ranks.h"

#include "base/log.h"
#include "base/progress.h"
#include "comm/measure.h"
#include "train/group_check.h"
#include "train/run_layout.h"

namespace ingot {

namespace {

/// parallel.bucket = "auto": measured in rank 0's group of data ranks.
int64_t bucket_for(const RankGroups& groups) {
  auto bytes = static_cast<double>(measure_bucket(groups.data()));
  groups.world().broadcast(Tensor::of(&bytes, {1}), 0).wait();
  return static_cast<int64_t>(bytes);
}

}  // namespace

RunRanks::RunRanks(const Recipe& recipe, World* world, const SupposedData& supposed)
    : alone_(world == nullptr ? self_world() : nullptr), world_(world == nullptr ? alone_.get() : world) {
  RankOptions options = rank_options(recipe);
  options.supposed = supposed;
  const auto make = [&] {
    groups_ = std::make_unique<RankGroups>(grid_of(recipe.parallel, world_->ranks()), world_->rank(),
                                           group_maker(), options);
  };
  make();
  if (!recipe.parallel.measures_bucket() || groups_->data().size() == 1) return;
  options.shards.bucket_bytes = bucket_for(*groups_);
  if (leads())
    log::info("parallel.bucket: {} by measurement",
              format_bytes(static_cast<double>(options.shards.bucket_bytes)));
  make();
}

GroupMaker RunRanks::group_maker() const {
  return [world = world_](std::string name, const std::vector<int>& members) {
    return world->group(std::move(name), members);
  };
}

Recipe RunRanks::fitted(Recipe recipe) const {
  recipe.parallel.data = groups_->batch_ranks();
  require_same_program(groups_->world(), recipe);
  for (const std::string& change : fit_to_ranks(recipe, groups_->batch_ranks()))
    if (leads()) log::warn("{}", change);
  return recipe;
}

Recipe for_one_rank(Recipe recipe) {
  recipe.parallel = {};
  return recipe;
}

}  // namespace ingot
