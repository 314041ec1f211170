// See share_rollouts.h.
#include "post/rl/share_rollouts.h"

#include <nlohmann/json.hpp>

#include "comm/agree.h"

namespace ingot {

void sample_on_data_ranks(const TrainEngine& engine, const RolloutSampler& sampler,
                          std::vector<RolloutGroup>& groups, RolloutCost& cost) {
  const RankGroups& ranks = engine.ranks().groups();
  if (ranks.batch_ranks() == 1 || engine.model().config().moe.experts > 0)
    return sampler.sample(groups, cost);
  const auto count = static_cast<size_t>(ranks.batch_ranks()), own = static_cast<size_t>(ranks.batch_rank());
  std::vector<RolloutGroup> mine;
  for (size_t i = own; i < groups.size(); i += count) mine.push_back(groups[i]);
  const std::string all = agree(
      &ranks.world(),
      [&] {
        if (!mine.empty()) sampler.sample(mine, cost);
        return groups_json(mine);
      },
      [](const std::vector<std::string>& texts) { return nlohmann::json(texts).dump(); });
  const auto texts = nlohmann::json::parse(all).get<std::vector<std::string>>();
  for (size_t rank = 0; rank < count; ++rank) {
    std::vector<RolloutGroup> theirs = parse_groups(texts[rank], fmt::format("rank {}", rank));
    for (size_t i = 0; i < theirs.size(); ++i)
      groups[rank + i * count].rollouts = std::move(theirs[i].rollouts);
  }
}

}  // namespace ingot
