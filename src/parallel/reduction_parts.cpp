// See reduction_parts.h.
#include "parallel/reduction_parts.h"

#include <algorithm>

namespace ingot {
namespace {

std::vector<ReductionPart> whole_buckets(const FlatLayout& layout) {
  std::vector<ReductionPart> parts;
  for (size_t b = 0; b < layout.buckets.size(); ++b) {
    const FlatBucket& bucket = layout.buckets[b];
    parts.push_back(
        {{{static_cast<int>(b), bucket.begin, bucket.end, bucket.parameters, true}}, bucket.parameters});
  }
  return parts;
}

/// When the last gradient of a parameter is complete: the greater, the sooner.
int64_t depth_of(const ParameterSpec& spec) {
  int64_t depth = INT64_MAX;
  for (const int64_t group : spec.layer_groups) depth = std::min(depth, depth_of_layer_group(group));
  return depth;
}

/// Parameters in the order in which backward completes them, cut where a part is full and where parameters
/// begin that are reduced at another time.
std::vector<std::vector<int>> deal(const ParameterTable& table, const FlatLayout& layout, int64_t bytes,
                                   const std::vector<bool>& late) {
  std::vector<int> order;
  for (int i = 0; i < table.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const bool late_a = late[static_cast<size_t>(a)], late_b = late[static_cast<size_t>(b)];
    if (late_a != late_b) return late_b;
    const int64_t depth_a = depth_of(table[a]), depth_b = depth_of(table[b]);
    return depth_a != depth_b ? depth_a > depth_b : a > b;
  });
  std::vector<std::vector<int>> dealt;
  int64_t filled = bytes;
  for (size_t k = 0; k < order.size(); ++k) {
    const auto i = static_cast<size_t>(order[k]);
    const bool turns_late = k > 0 && late[i] != late[static_cast<size_t>(order[k - 1])];
    if (filled >= bytes || turns_late) dealt.emplace_back(), filled = 0;
    dealt.back().push_back(order[k]);
    filled += layout.shapes[i].numel() * static_cast<int64_t>(sizeof(float));
  }
  return dealt;
}

}  // namespace

std::vector<int64_t> ReductionRange::rows(const FlatBucket& of, int64_t element_bytes) const {
  std::vector<int64_t> counts;
  for (int r = 0; r < of.ranks; ++r) {
    const int64_t first = std::max(begin, of.shard_begin(r)), last = std::min(end, of.shard_begin(r + 1));
    counts.push_back(std::max<int64_t>(0, last - first) / element_bytes);
  }
  return counts;
}

std::vector<ReductionPart> reduction_parts(const ParameterTable& table, const Placement& placement,
                                           const FlatLayout& layout, const std::vector<bool>& late) {
  const FlatSharding& s = placement.sharding;
  if (s.level != ShardLevel::optimizer || s.buckets != FlatBuckets::tensor_group || s.bucket_bytes <= 0)
    return whole_buckets(layout);
  // A parameter's range reaches to the next one of its bucket, so that padding is somebody's.
  std::vector<int64_t> begin(layout.offsets), end(layout.offsets);
  for (const FlatBucket& bucket : layout.buckets) {
    std::vector<int> by_offset = bucket.parameters;
    std::stable_sort(by_offset.begin(), by_offset.end(), [&](int a, int b) {
      return layout.offsets[static_cast<size_t>(a)] < layout.offsets[static_cast<size_t>(b)];
    });
    int64_t at = bucket.end;
    for (auto i = by_offset.rbegin(); i != by_offset.rend(); ++i) {
      end[static_cast<size_t>(*i)] = at;
      at = begin[static_cast<size_t>(*i)];
    }
    if (!by_offset.empty()) begin[static_cast<size_t>(by_offset.front())] = bucket.begin;
  }
  std::vector<ReductionPart> parts;
  for (std::vector<int>& members : deal(table, layout, s.bucket_bytes, late)) {
    ReductionPart part{{}, members};
    std::sort(members.begin(), members.end(), [&](int a, int b) {
      const auto x = static_cast<size_t>(a), y = static_cast<size_t>(b);
      return std::pair(begin[x], end[x]) < std::pair(begin[y], end[y]);
    });
    for (const int p : members) {
      const auto i = static_cast<size_t>(p);
      const bool joins = !part.ranges.empty() && part.ranges.back().bucket == layout.bucket_of[i] &&
                         part.ranges.back().end == begin[i];
      if (!joins) part.ranges.push_back({layout.bucket_of[i], begin[i], begin[i], {}});
      part.ranges.back().end = end[i];
      part.ranges.back().parameters.push_back(p);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace ingot
