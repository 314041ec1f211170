// See axes.h.
#include "parallel/axes.h"

#include <algorithm>

namespace ingot {
namespace {

constexpr Axis kTokens[] = {Axis::data, Axis::context, Axis::context_inner, Axis::tensor};
constexpr Axis kExperts[] = {Axis::expert_data, Axis::nodes, Axis::expert, Axis::expert_tensor};

/// Neighbours that exchange heads, where that is not all context ranks.
int context_inner(const RankOptions& options) {
  return options.context == ContextForm::heads ? 1 : options.context_inner;
}

}  // namespace

std::span<const Axis> axes_of_view(bool experts) {
  return experts ? std::span<const Axis>(kExperts) : kTokens;
}

int Axes::index(Axis axis, int rank) const {
  const bool nodes = options_.dispatch == DispatchKind::hierarchical;
  switch (axis) {
    case Axis::data:
      return grid_.index(GridAxis::dp, rank);
    case Axis::context:
      return grid_.index(GridAxis::cp, rank) / context_inner(options_);
    case Axis::context_inner:
      return grid_.index(GridAxis::cp, rank) % context_inner(options_);
    case Axis::tensor:
      return grid_.index(GridAxis::tp, rank);
    case Axis::expert_data:
      return grid_.index(GridAxis::edp, rank);
    case Axis::nodes:
      return nodes ? rank / options_.node_ranks : 0;
    case Axis::expert_tensor:
      return grid_.index(GridAxis::etp, rank);
    case Axis::expert:
      break;
  }
  const int index = grid_.index(GridAxis::ep, rank);
  if (!nodes) return index;
  int before = 0;  // ranks of other experts on this node
  for (const int r : grid_.group({GridAxis::ep}, rank))
    before += r < rank && r / options_.node_ranks == rank / options_.node_ranks;
  return before;
}

std::vector<int> Axes::ranks(std::span<const Axis> axes, int rank) const {
  std::vector<int> found;
  const int first = in_stage(0, grid_.index(GridAxis::pp, rank));
  for (int r = first; r < first + stage_ranks(); ++r) {
    const auto same = [&](Axis a) {
      return std::find(axes.begin(), axes.end(), a) != axes.end() || index(a, r) == index(a, rank);
    };
    const std::span<const Axis> view = axes_of_view(!axes.empty() && is_of_experts(axes.front()));
    if (std::all_of(view.begin(), view.end(), same)) found.push_back(r);
  }
  return found;
}

std::vector<Axis> axes_of_group(const Communicator& group, const Context& c, const RankGroups& groups) {
  const auto is = [&](const Communicator* g) { return &group == g; };
  const auto experts = [&](std::vector<Axis> axes) {
    if (!groups.same_rows()) axes.push_back(Axis::expert_tensor);
    return axes;
  };
  if (is(c.tensor) || is(&groups.tensor())) return {Axis::tensor};
  const bool mixed = context_inner(groups.options()) > 1;
  if (is(c.context) || is(&groups.context())) return {Axis::context, Axis::context_inner};
  if (is(c.context_inner)) return {mixed ? Axis::context_inner : Axis::context};
  if (is(c.context_outer)) return {Axis::context};
  if (is(c.expert) || is(&groups.expert())) return experts({Axis::nodes, Axis::expert});
  if (is(c.expert_across)) return {Axis::nodes};
  if (is(c.expert_inside)) return experts({Axis::expert});
  if (is(&groups.data())) return {Axis::data, Axis::context, Axis::context_inner};
  const bool tokens = is(c.tokens) || is(&groups.tokens());
  if (tokens && groups.options().sequence_parallel)
    return {Axis::data, Axis::context, Axis::context_inner, Axis::tensor};
  if (tokens) return {Axis::data, Axis::context, Axis::context_inner};
  if (is(&groups.expert_data())) return {Axis::expert_data};
  fail("group '{}' of {} ranks lies over no axes of a model's values", group.name(), group.size());
}

}  // namespace ingot
