// See shards.h.
#include "parallel/shards.h"

namespace ingot {

Shards::Shards(const RankGroups& groups, const WeightSet& weights) : groups_(groups) {
  const FlatLayout& layout = weights.layout();
  const int64_t size = size_of(weights.precision().stream);
  for (int i = 0; i < weights.size(); ++i) {
    const ParameterSpec& spec = weights.table()[i];
    if (!spec.trainable)
      throw Error(
          fmt::format("'{}' is frozen; a sharded optimizer updates all parameters", spec.name),
          "set parallel.shard = \"none\": frozen parameters have no optimizer state that could be sharded");
    const FlatBucket& bucket = layout.buckets[static_cast<size_t>(layout.bucket_of[static_cast<size_t>(i)])];
    const int64_t first = layout.offsets[static_cast<size_t>(i)],
                  count = layout.shapes[static_cast<size_t>(i)].numel(), shard = bucket.shard_bytes();
    TensorShards s{&groups.shard_group(bucket.group), {}};
    s.begins.reserve(static_cast<size_t>(bucket.ranks) + 1);
    for (int64_t r = 0, at = bucket.begin - first; r < bucket.ranks; ++r, at += shard)
      s.begins.push_back(at <= 0 ? 0 : at >= count * size ? count : at / size);
    s.begins.push_back(count);
    shards_.push_back(std::move(s));
  }
}

Pending gather_bucket(const RankGroups& groups, const WeightSet& weights, int bucket) {
  const FlatBucket& b = weights.layout().buckets[static_cast<size_t>(bucket)];
  const Tensor flat = weights.gather_tensor(bucket);
  if (b.ranks == 1 || flat.numel() == 0) return {};
  const int64_t shard = flat.numel() / b.ranks;
  return groups.shard_group(b.group).all_gather(flat.slice(b.rank * shard, (b.rank + 1) * shard), flat);
}

void Shards::gather(WeightSet& weights) const {
  std::vector<Pending> gathers;
  for (size_t b = 0; b < weights.layout().buckets.size(); ++b)
    gathers.push_back(gather_bucket(groups_, weights, static_cast<int>(b)));
  for (size_t b = 0; b < gathers.size(); ++b) {
    gathers[b].wait();
    weights.complete_gather(static_cast<int>(b));
  }
}

}  // namespace ingot
