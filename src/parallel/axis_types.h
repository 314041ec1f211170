// The type of each value of a recorded tape on every axis of ranks (tape/axis_rule.h), derived from the rules
// of the ops and from how parameters are sharded; no layer is annotated. It finds, on the null device and
// from any one rank's tape, what otherwise shows as a slightly wrong gradient: a missing or doubled
// collective.
//
// Leaves are the batch: rows on the data and context axes, replicated on the tensor axis. Where tokens are
// sent to the ranks of their experts, values pass from the view of tokens to that of experts, and back where
// the sums return (parallel/axes.h). A replicated activation must not meet a varying one: its cotangent would
// be partial, so copy_to_axis is missing. A replicated parameter may: then its gradient is partial and must
// be summed over the axis (parallel/gradient_sums.h).
#pragma once
#include <array>
#include <map>

#include "parallel/axes.h"
#include "tape/axis_rule.h"

namespace ingot {

/// The types of one value; replicate on axes of one rank and of the other view.
struct ValueTypes {
  bool experts = false;  ///< which view
  std::array<AxisType, kAxes> types = {};
  AxisType on(Axis a) const { return types[static_cast<size_t>(a)]; }
  void set(Axis a, AxisType t) { types[static_cast<size_t>(a)] = t; }
  /// "data varying by rows, tensor partial": the axes that have several ranks.
  std::string str(const Axes& axes, int rank) const;
  bool operator==(const ValueTypes&) const = default;
};

struct AxisTypes {
  std::map<int32_t, ValueTypes> values;  ///< by the tape's id
  /// By trainable parameter, of those that the tape used; `shards` on axes over which it is sharded.
  std::map<int, ValueTypes> gradients;
};

/// Derives the types of c.tape, which was recorded with the context that `groups` joined. `received`: the
/// types of leaves that came from another pipeline stage. Throws Error that names the axis, the op, its
/// segment and its inputs' types.
AxisTypes axis_types(const Context& c, const RankGroups& groups,
                     const std::map<int32_t, ValueTypes>& received = {});

}  // namespace ingot
