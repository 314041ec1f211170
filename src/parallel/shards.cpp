// See shards.h.
#include "parallel/shards.h"

#include <algorithm>

namespace ingot {

Shards::Shards(const RankGroups& groups, const WeightSet& weights) : groups_(groups) {
  const FlatLayout& layout = weights.layout();
  const int64_t size = size_of(weights.precision().stream);
  for (int i = 0; i < weights.size(); ++i) {
    const ParameterSpec& spec = weights.table()[i];
    if (!spec.trainable)
      throw Error(
          fmt::format("'{}' is frozen; ranks that share out the optimizer move all parameters", spec.name),
          "set parallel.shard = \"none\": what is frozen has no optimizer state to share out");
    const FlatBucket& unit = layout.units[static_cast<size_t>(layout.bucket_of[static_cast<size_t>(i)])];
    const int64_t first = layout.offsets[static_cast<size_t>(i)],
                  count = layout.shapes[static_cast<size_t>(i)].numel();
    TensorShards s{&groups.sharers(unit.group), {}};
    for (int r = 0; r < unit.ranks; ++r)
      s.begins.push_back(std::clamp<int64_t>((unit.share_begin(r) - first) / size, 0, count));
    s.begins.push_back(count);
    shards_.push_back(std::move(s));
  }
}

Pending gather_unit(const RankGroups& groups, const WeightSet& weights, int unit) {
  const FlatBucket& u = weights.layout().units[static_cast<size_t>(unit)];
  const Tensor flat = weights.travelling(unit);
  if (u.ranks == 1 || flat.numel() == 0) return {};
  const int64_t share = flat.numel() / u.ranks;
  return groups.sharers(u.group).all_gather(flat.slice(u.rank * share, (u.rank + 1) * share), flat);
}

void Shards::gather(WeightSet& weights) const {
  std::vector<Pending> units;
  for (size_t u = 0; u < weights.layout().units.size(); ++u)
    units.push_back(gather_unit(groups_, weights, static_cast<int>(u)));
  for (size_t u = 0; u < units.size(); ++u) {
    units[u].wait();
    weights.arrived(static_cast<int>(u));
  }
}

}  // namespace ingot
