// See gradient_sums.h.
#include "parallel/gradient_sums.h"

#include <algorithm>
#include <set>

namespace ingot {
namespace {

bool overlap(const Tensor& a, const Tensor& b) {
  const auto *x = static_cast<const std::byte*>(a.data), *y = static_cast<const std::byte*>(b.data);
  return a.bytes() > 0 && b.bytes() > 0 && x < y + b.bytes() && y < x + a.bytes();
}

/// One parameter on all ranks.
class ParameterCheck {
 public:
  ParameterCheck(const Axes& axes, const ParameterSpec& spec, int p, const std::vector<RankGradients>& ranks)
      : axes_(axes), spec_(spec), p_(p), ranks_(ranks) {
    for (int r = 0; r < size(); ++r)
      if (at(r).types.count(p) > 0) users_.push_back(r), stages_.insert(stage(r));
  }

  void run() const {
    for (int r = 0; r < size(); ++r)
      if (at(r).sums.count(p_) > 0) check(r);
  }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }
  const RankGradients& at(int r) const { return ranks_[static_cast<size_t>(r)]; }
  int stage(int r) const { return axes_.grid().index(GridAxis::pp, r); }

  /// The gradient's types on a rank; where it does not use the parameter (a bias of the first tensor rank),
  /// those of a rank that does.
  const ValueTypes& types(int r) const {
    if (const auto own = at(r).types.find(p_); own != at(r).types.end()) return own->second;
    if (users_.empty()) fail("no rank has a gradient of '{}'", spec_.name);
    const auto near = std::find_if(users_.begin(), users_.end(), [&](int u) { return stage(u) == stage(r); });
    return at(near != users_.end() ? *near : users_.front()).types.at(p_);
  }

  std::vector<int> needed(int r, const ValueTypes& t) const {
    std::vector<Axis> partial;
    for (const Axis a : axes_of_view(t.experts))
      if (t.on(a) == AxisType::partial) partial.push_back(a);
    std::vector<int> all;
    for (const int s : axes_.ranks(partial, r))
      for (const int stage : stages_) all.push_back(axes_.in_stage(s, stage));
    return all;
  }

  /// How often each rank's own gradient is in rank r's, after its first `steps` sums.
  std::vector<int> counts(int r, size_t steps) const {
    std::vector<int> n(ranks_.size(), 0);
    if (steps == 0) {
      n[static_cast<size_t>(r)] = 1;
      return n;
    }
    const GradientSum& sum = at(r).sums.at(p_)[steps - 1];
    for (const int s : sum.ranks) {
      const auto theirs = at(s).sums.find(p_);
      if (theirs == at(s).sums.end() || theirs->second.size() < steps ||
          theirs->second[steps - 1].ranks != sum.ranks)
        fail("the gradient of '{}': rank {} sums it over group '{}', in which rank {} takes no part",
             spec_.name, r, sum.group, s);
      const std::vector<int> more = counts(s, steps - 1);
      for (size_t i = 0; i < n.size(); ++i) n[i] += more[i];
    }
    return n;
  }

  void check(int r) const {
    const std::vector<GradientSum>& sums = at(r).sums.at(p_);
    if (std::any_of(sums.begin(), sums.end(), [](const GradientSum& s) { return !s.kept; }))
      return;  // others get it
    const ValueTypes& t = types(r);
    const std::vector<int> need = needed(r, t), have = counts(r, sums.size());
    for (int s = 0; s < size(); ++s) {
      if (stages_.count(stage(s)) == 0) continue;  // has zeros
      const int expected = std::find(need.begin(), need.end(), s) != need.end() ? 1 : 0,
                found = have[static_cast<size_t>(s)];
      if (expected != found) refuse(r, s, expected, found, t);
    }
  }

  [[noreturn]] void refuse(int r, int s, int expected, int found, const ValueTypes& t) const {
    std::string axis = "pipeline", groups, types = t.str(axes_, r);
    if (stages_.size() > 1) types += types.empty() ? "pipeline partial" : ", pipeline partial";
    if (stage(r) == stage(s))
      for (const Axis a : axes_of_view(t.experts))
        if (axes_.index(a, r) != axes_.index(a, s)) axis = name_of(a);
    for (const GradientSum& sum : at(r).sums.at(p_)) {
      if (sum.ranks.size() < 2) continue;
      groups += fmt::format("{}group '{}' of ranks", groups.empty() ? "" : " and ", sum.group);
      for (const int s : sum.ranks) groups += fmt::format(" {}", s);
    }
    throw Error(
        fmt::format("on the {} axis: the gradient of '{}' ({}) on rank {} contains that of rank {} {} times, "
                    "not {}; it is summed over {}",
                    axis, spec_.name, types, r, s, found, expected, groups.empty() ? "nothing" : groups),
        "its sharding and TensorGradient decide what is summed (docs/parallel.md)");
  }

  const Axes& axes_;
  const ParameterSpec& spec_;
  int p_;
  const std::vector<RankGradients>& ranks_;
  std::vector<int> users_;  ///< ranks
  std::set<int> stages_;    ///< theirs
};

}  // namespace

GradientSums recorded_sums(RecordingWorld& world, const ParameterTable& table, const Placement& placement,
                           const std::function<void(GradientBuffer&)>& reduce) {
  // Under full sharding, received gradients are added in memory, elsewhere than where tapes write.
  const bool adds = placement.sharding.level == ShardLevel::full;
  GradientBuffer gradients(table, placement, DType::f32, adds ? Backing::sparse : Backing::nothing);
  GradientSums sums;
  std::map<int, Tensor> tensors;
  for (int i = 0; i < table.size(); ++i) {
    if (!table[i].trainable || local_shape(table[i], placement).numel() == 0) continue;
    tensors[i] = gradients.slot(i).tensor;
    sums[i];
  }
  world.clear();
  reduce(gradients);
  for (const RecordedOperation& o : world.operations()) {
    INGOT_CHECK(o.kind == CommKind::all_reduce || o.kind == CommKind::reduce_scatter, "{} of gradients",
                name_of(o.kind));
    for (const auto& [i, tensor] : tensors) {
      const auto touches = [&, kept = gradients.gradient(i)](const Tensor& t) {
        return overlap(tensor, t) || overlap(kept, t);
      };
      if (touches(o.in))
        sums[i].push_back({o.group->name(), RecordingWorld::members(*o.group), touches(o.out)});
    }
  }
  return sums;
}

void check_gradient_sums(const Axes& axes, const ParameterTable& table,
                         const std::vector<RankGradients>& ranks) {
  for (int p = 0; p < table.size(); ++p)
    if (table[p].trainable) ParameterCheck(axes, table[p], p, ranks).run();
}

}  // namespace ingot
