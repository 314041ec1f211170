// See rank_check.h.
#include "train/rank_check.h"

#include "parallel/layout_check.h"
#include "train/run_layout.h"

namespace ingot {

int planned_ranks(const Recipe& recipe) {
  const ParallelConfig& p = recipe.parallel;
  const int64_t group = p.ranks_per_group();
  if (p.data > 0) return static_cast<int>(p.data * group);
  for (int64_t data = 1; data < p.expert * p.expert_tensor; ++data) try {
      return grid_of(p, static_cast<int>(data * group)).ranks();
    } catch (const Error&) {  // the experts do not divide over so few
    }
  return static_cast<int>(p.expert * p.expert_tensor * group);
}

std::string check_ranks(const Recipe& recipe, int ranks) {
  if (ranks < 2) return {};
  return check_layout(Decoder(recipe.model), {grid_of(recipe.parallel, ranks), rank_options(recipe),
                                              layout_of(recipe.parallel, recipe.model)});
}

}  // namespace ingot
