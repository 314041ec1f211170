// The axes along which ranks of a pipeline stage share work, on which types are derived (axis_types.h). Each
// value lies in one of the two views of the grid (comm/grid.h): that of tokens or, between dispatch and
// combine, that of experts. Under a hierarchical dispatch the experts' axis is two axes: nodes, and the ranks
// of a node. So is the context axis where neighbouring context ranks exchange heads.
#pragma once
#include <span>
#include <vector>

#include "base/enum.h"
#include "parallel/rank_groups.h"

namespace ingot {

enum class Axis : uint8_t { data, context, context_inner, tensor, expert_data, nodes, expert, expert_tensor };
constexpr auto enum_names(Axis) {
  return names_in_order<Axis>("data", "context", "context inner", "tensor", "expert data", "expert nodes",
                              "expert", "expert tensor");
}
inline constexpr int kAxes = 8;

/// The axes of the view of tokens or of experts.
std::span<const Axis> axes_of_view(bool experts);
constexpr bool is_of_experts(Axis axis) {
  return axis >= Axis::expert_data;
}

class Axes {
 public:
  Axes(const Grid& grid, const RankOptions& options) : grid_(grid), options_(options) {}

  const Grid& grid() const { return grid_; }
  int index(Axis axis, int rank) const;
  /// Ranks of `rank`'s stage that differ from it on the given axes of one view only, ascending; itself among
  /// them.
  std::vector<int> ranks(std::span<const Axis> axes, int rank) const;
  int size(Axis axis, int rank) const { return static_cast<int>(ranks({&axis, 1}, rank).size()); }
  /// The rank at the same coordinates in another stage.
  int in_stage(int rank, int stage) const { return rank % stage_ranks() + stage * stage_ranks(); }
  int stage_ranks() const { return grid_.ranks() / grid_.size(GridAxis::pp); }

 private:
  Grid grid_;
  RankOptions options_;
};

/// The axes over which a group of a rank's context or groups lies; Error for any other group.
std::vector<Axis> axes_of_group(const Communicator& group, const Context& c, const RankGroups& groups);

}  // namespace ingot
