// See flat_layout.h.
#include "nn/flat_layout.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace ingot {
namespace {

/// Two cache lines, so that half as wide copies at half the offset begin on a cache line too.
constexpr int64_t kBlock = 128;

int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

/// What fills a unit early and is reduced late, or never with its neighbours: it travels alone.
bool stands_alone(const ParameterSpec& spec) {
  return spec.role == ParamRole::embedding || spec.role == ParamRole::head || spec.parts.size() > 1;
}

/// Where a rank's tapes first meet a parameter: a stage that does not own a matrix meets it elsewhere than its owner.
int64_t met_in(const Placement& placement, const ParameterSpec& spec) {
  const auto held =
      std::find_if(spec.parts.begin(), spec.parts.end(), [&](int64_t p) { return holds_part(placement, p); });
  return depth_of_part(held != spec.parts.end() ? *held : spec.parts.front());
}

/// Whether other stages of a pipeline hold it as well.
bool has_copies(const Placement& placement, const ParameterSpec& spec) {
  const auto held = [&](int64_t p) { return holds_part(placement, p); };
  return std::any_of(spec.parts.begin(), spec.parts.end(), held) &&
         !std::all_of(spec.parts.begin(), spec.parts.end(), held);
}

/// The parameters of a group, divided among its units in order. What tensor ranks sum first has units of its own: they
/// travel at another time.
std::vector<std::vector<int>> divide(const ParameterTable& table, const Placement& placement, FlatGroup group,
                                     bool summed, const std::vector<int64_t>& bytes) {
  const FlatSharing& sharing = placement.sharing;
  std::vector<int> all;
  for (int i = 0; i < table.size(); ++i)
    if (flat_group(table[i]) == group && summed_over_tensor_ranks(placement, table[i]) == summed)
      all.push_back(i);
  if (all.empty()) return {};
  if (sharing.units == FlatBuckets::group) return {all};
  std::vector<std::vector<int>> units;
  if (sharing.units == FlatBuckets::part) {
    std::map<int64_t, std::vector<int>> parts;
    for (const int i : all)
      if (has_copies(placement, table[i]))
        units.push_back({i});
      else
        parts[met_in(placement, table[i])].push_back(i);
    for (auto& [part, members] : parts) units.push_back(std::move(members));
    return units;
  }
  int64_t filled = 0;
  bool open = false;
  for (const int i : all) {
    if (!open || stands_alone(table[i])) units.emplace_back(), filled = 0;
    units.back().push_back(i);
    filled += bytes[static_cast<size_t>(i)];
    open = filled < sharing.bucket_bytes && !stands_alone(table[i]);
  }
  return units;
}

/// Side by side; the unit's end is padded so that its ranks have equal shares.
void place_in_line(FlatBucket& unit, const std::vector<int64_t>& bytes, FlatLayout& layout) {
  int64_t at = unit.begin;
  for (const int i : unit.parameters) {
    layout.offsets[static_cast<size_t>(i)] = at;
    at += bytes[static_cast<size_t>(i)];
  }
  unit.end = unit.begin + round_up(at - unit.begin, kBlock * unit.ranks);
}

/// Each tensor in one rank's share: the largest first, to whoever has least. `turn` moves on who gets the first.
void place_whole(FlatBucket& unit, const std::vector<int64_t>& bytes, int turn, FlatLayout& layout) {
  std::vector<int> order = unit.parameters;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return bytes[static_cast<size_t>(a)] > bytes[static_cast<size_t>(b)];
  });
  std::vector<int64_t> filled(static_cast<size_t>(unit.ranks), 0);
  std::vector<std::pair<int, int64_t>> places;
  for (const int i : order) {
    int owner = turn % unit.ranks;
    for (int k = 0; k < unit.ranks; ++k) {
      const int r = (turn + k) % unit.ranks;
      if (filled[static_cast<size_t>(r)] < filled[static_cast<size_t>(owner)]) owner = r;
    }
    places.emplace_back(owner, filled[static_cast<size_t>(owner)]);
    filled[static_cast<size_t>(owner)] += bytes[static_cast<size_t>(i)];
  }
  unit.end = unit.begin + *std::max_element(filled.begin(), filled.end()) * unit.ranks;
  for (size_t k = 0; k < order.size(); ++k)
    layout.offsets[static_cast<size_t>(order[k])] = unit.share_begin(places[k].first) + places[k].second;
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
  const FlatSharing& sharing = placement.sharing;
  FlatLayout layout;
  std::vector<int64_t> bytes;
  for (int i = 0; i < table.size(); ++i) {
    layout.shapes.push_back(trainable_only && !table[i].trainable ? Shape{0}
                                                                  : local_shape(table[i], placement));
    bytes.push_back(round_up(layout.shapes.back().numel() * size_of(dtype), kBlock));
  }
  layout.offsets.assign(bytes.size(), 0);
  layout.bucket_of.assign(bytes.size(), -1);
  const auto place = [&](FlatGroup group, bool summed, std::vector<int> members) {
    const bool experts = group == FlatGroup::experts;
    FlatBucket unit{group,
                    summed,
                    layout.bytes,
                    layout.bytes,
                    experts ? sharing.expert_ranks : sharing.ranks,
                    experts ? sharing.expert_rank : sharing.rank,
                    std::move(members)};
    const ParameterSpec& first = table[unit.parameters.front()];
    if (sharing.units == FlatBuckets::part) unit.part = met_in(placement, first);
    const auto index = static_cast<int>(layout.units.size());
    // Copies on other stages are cut alike, whatever else stands there.
    const int turn = sharing.units == FlatBuckets::part && has_copies(placement, first) ? 0 : index;
    if (sharing.whole_tensors && group != FlatGroup::vectors)
      place_whole(unit, bytes, turn, layout);
    else
      place_in_line(unit, bytes, layout);
    for (const int i : unit.parameters) layout.bucket_of[static_cast<size_t>(i)] = index;
    layout.bytes = unit.end;
    layout.units.push_back(std::move(unit));
  };
  for (const FlatGroup group : kFlatGroups)
    for (const bool summed : {false, true})
      for (std::vector<int>& members : divide(table, placement, group, summed, bytes))
        place(group, summed, std::move(members));
  return layout;
}

}  // namespace ingot
