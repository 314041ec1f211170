// See shards.h.
#include "parallel/shards.h"

#include <algorithm>

namespace ingot {
namespace {

/// This rank's range of a flat group.
Tensor my_range(const Tensor& flat, const Communicator& group) {
  const int64_t n = flat.numel() / group.size();
  return flat.slice(group.rank() * n, (group.rank() + 1) * n);
}

}  // namespace

Shards::Shards(const RankGroups& groups, const WeightSet& weights) : groups_(groups) {
  for (int i = 0; i < weights.size(); ++i) {
    const ParameterSpec& spec = weights.table()[i];
    if (!spec.trainable)
      throw Error(fmt::format("'{}' is frozen; a sharded optimizer moves all parameters", spec.name),
                  "set parallel.shard_optimizer = false: what is frozen has no optimizer state to share out");
    const FlatGroup kind = flat_group(spec);
    Communicator& group = groups.replicas(kind);
    const Tensor flat = weights.flat_masters(kind), local = weights.master(i);
    const int64_t first = (static_cast<const char*>(local.data) - static_cast<const char*>(flat.data)) / size_of(flat.dtype());
    const int64_t shard = flat.numel() / group.size();
    TensorShards s{&group, {}};
    for (int r = 0; r < group.size(); ++r) s.begins.push_back(std::clamp<int64_t>(r * shard - first, 0, local.numel()));
    s.begins.push_back(local.numel());
    shards_.push_back(std::move(s));
  }
}

void Shards::reduce(const GradientBuffer& gradients) const {
  for (const FlatGroup kind : kFlatGroups) {
    Communicator& group = groups_.replicas(kind);
    const Tensor flat = gradients.flat(kind);
    if (group.size() > 1 && flat.numel() > 0) group.reduce_scatter(flat, my_range(flat, group)).wait();
  }
}

void Shards::gather(WeightSet& weights) const {
  for (const FlatGroup kind : kFlatGroups) {
    Communicator& group = groups_.replicas(kind);
    const Tensor flat = weights.flat_masters(kind);
    if (group.size() > 1 && flat.numel() > 0) group.all_gather(my_range(flat, group), flat).wait();
  }
  weights.refresh_compute();
}

}  // namespace ingot
