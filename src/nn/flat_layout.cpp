// See flat_layout.h.
#include "nn/flat_layout.h"

#include <algorithm>
#include <map>

#include "base/round.h"

namespace ingot {
namespace {

/// Two cache lines, so that half as wide copies at half the offset begin on a cache line too.
constexpr int64_t kBlock = 128;

/// Embeddings, heads and parameters of several layer groups are complete at another time than their
/// neighbours.
bool has_own_bucket(const ParameterSpec& spec) {
  return spec.role == ParamRole::embedding || spec.role == ParamRole::head || spec.layer_groups.size() > 1;
}

/// The first layer group of this rank that uses a parameter; it differs from stage to stage.
int64_t first_layer_group(const Placement& placement, const ParameterSpec& spec) {
  const auto held = std::find_if(spec.layer_groups.begin(), spec.layer_groups.end(),
                                 [&](int64_t p) { return holds_layer_group(placement, p); });
  return depth_of_layer_group(held != spec.layer_groups.end() ? *held : spec.layer_groups.front());
}

/// Whether other stages of a pipeline hold the parameter too.
bool has_copies(const Placement& placement, const ParameterSpec& spec) {
  const auto held = [&](int64_t p) { return holds_layer_group(placement, p); };
  return std::any_of(spec.layer_groups.begin(), spec.layer_groups.end(), held) &&
         !std::all_of(spec.layer_groups.begin(), spec.layer_groups.end(), held);
}

/// The parameters of a tensor group by bucket, in order. Gradients that tensor ranks sum first have buckets
/// of their own, because they are reduced later, and so have matrices that are sent in full precision.
std::vector<std::vector<int>> divide(const ParameterTable& table, const Placement& placement, FlatGroup group,
                                     bool summed, bool full_precision, const std::vector<int64_t>& bytes) {
  const FlatSharding& sharding = placement.sharding;
  std::vector<int> all;
  for (int i = 0; i < table.size(); ++i)
    if (flat_group(table[i]) == group && summed_over_tensor_ranks(placement, table[i]) == summed &&
        (group == FlatGroup::matrices && table[i].full_precision) == full_precision)
      all.push_back(i);
  if (all.empty()) return {};
  if (sharding.buckets == FlatBuckets::tensor_group) return {all};
  std::vector<std::vector<int>> buckets;
  if (sharding.buckets == FlatBuckets::layer_group) {
    std::map<int64_t, std::vector<int>> by_layer_group;
    for (const int i : all)
      if (has_copies(placement, table[i]))
        buckets.push_back({i});
      else
        by_layer_group[first_layer_group(placement, table[i])].push_back(i);
    for (auto& [layer_group, members] : by_layer_group) buckets.push_back(std::move(members));
    return buckets;
  }
  int64_t filled = 0;
  bool open = false;
  for (const int i : all) {
    if (!open || has_own_bucket(table[i])) buckets.emplace_back(), filled = 0;
    buckets.back().push_back(i);
    filled += bytes[static_cast<size_t>(i)];
    open = filled < sharding.bucket_bytes && !has_own_bucket(table[i]);
  }
  return buckets;
}

/// Contiguous; the end of the bucket is padded so that its ranks have equal shards.
void place_contiguously(FlatBucket& bucket, const std::vector<int64_t>& bytes, FlatLayout& layout) {
  int64_t at = bucket.begin;
  for (const int i : bucket.parameters) {
    layout.offsets[static_cast<size_t>(i)] = at;
    at += bytes[static_cast<size_t>(i)];
  }
  bucket.end = bucket.begin + round_up(at - bucket.begin, kBlock * bucket.ranks);
}

/// Each tensor in one rank's shard: the largest first, to the rank that has least. `first` is the rank that
/// gets the largest.
void place_whole(FlatBucket& bucket, const std::vector<int64_t>& bytes, int first, FlatLayout& layout) {
  std::vector<int> order = bucket.parameters;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return bytes[static_cast<size_t>(a)] > bytes[static_cast<size_t>(b)];
  });
  std::vector<int64_t> filled(static_cast<size_t>(bucket.ranks), 0);
  std::vector<std::pair<int, int64_t>> positions;  // owner, offset in its shard
  for (const int i : order) {
    int owner = first % bucket.ranks;
    for (int k = 0; k < bucket.ranks; ++k) {
      const int r = (first + k) % bucket.ranks;
      if (filled[static_cast<size_t>(r)] < filled[static_cast<size_t>(owner)]) owner = r;
    }
    positions.emplace_back(owner, filled[static_cast<size_t>(owner)]);
    filled[static_cast<size_t>(owner)] += bytes[static_cast<size_t>(i)];
  }
  bucket.end = bucket.begin + *std::max_element(filled.begin(), filled.end()) * bucket.ranks;
  for (size_t k = 0; k < order.size(); ++k)
    layout.offsets[static_cast<size_t>(order[k])] =
        bucket.shard_begin(positions[k].first) + positions[k].second;
}

}  // namespace

FlatGroup flat_group(const ParameterSpec& spec) {
  INGOT_CHECK((spec.role == ParamRole::expert) == (spec.shard.axis == ShardAxis::expert), "'{}'", spec.name);
  if (spec.role == ParamRole::expert) return FlatGroup::experts;
  const bool matrix =
      spec.shape.rank() >= 2 && spec.role != ParamRole::conv && spec.role != ParamRole::embedding;
  return matrix ? FlatGroup::matrices : FlatGroup::vectors;
}

FlatLayout flat_layout(const ParameterTable& table, const Placement& placement, DType dtype,
                       bool trainable_only) {
  return flat_layout(
      table, placement, [dtype](const ParameterSpec&) { return dtype; }, trainable_only);
}

FlatLayout flat_layout(const ParameterTable& table, const Placement& placement,
                       const std::function<DType(const ParameterSpec&)>& dtype, bool trainable_only) {
  const FlatSharding& sharding = placement.sharding;
  FlatLayout layout;
  std::vector<int64_t> bytes;
  for (int i = 0; i < table.size(); ++i) {
    layout.shapes.push_back(trainable_only && !table[i].trainable ? Shape{0}
                                                                  : local_shape(table[i], placement));
    bytes.push_back(round_up(layout.shapes.back().numel() * size_of(dtype(table[i])), kBlock));
  }
  layout.offsets.assign(bytes.size(), 0);
  layout.bucket_of.assign(bytes.size(), -1);
  const auto place = [&](FlatGroup group, bool summed, std::vector<int> members) {
    const bool experts = group == FlatGroup::experts;
    FlatBucket bucket{group,
                      summed,
                      layout.bytes,
                      layout.bytes,
                      experts ? sharding.expert_ranks : sharding.ranks,
                      experts ? sharding.expert_rank : sharding.rank,
                      std::move(members)};
    const ParameterSpec& first = table[bucket.parameters.front()];
    if (sharding.buckets == FlatBuckets::layer_group)
      bucket.layer_group = first_layer_group(placement, first);
    const auto index = static_cast<int>(layout.buckets.size());
    // Copies on other stages are sharded alike, whatever else those stages hold.
    const int first_rank =
        sharding.buckets == FlatBuckets::layer_group && has_copies(placement, first) ? 0 : index;
    if (sharding.whole_tensors && group != FlatGroup::vectors)
      place_whole(bucket, bytes, first_rank, layout);
    else
      place_contiguously(bucket, bytes, layout);
    for (const int i : bucket.parameters) layout.bucket_of[static_cast<size_t>(i)] = index;
    layout.bytes = bucket.end;
    layout.buckets.push_back(std::move(bucket));
  };
  for (const FlatGroup group : kFlatGroups)
    for (const bool summed : {false, true})
      for (const bool full_precision : {false, true})
        for (std::vector<int>& members : divide(table, placement, group, summed, full_precision, bytes))
          place(group, summed, std::move(members));
  return layout;
}

}  // namespace ingot
