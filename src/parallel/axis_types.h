// What each value of a recorded tape is to the ranks of every axis, derived from the table of ops
// (ops/axis_rules.h) and from where parameters are cut; nothing is annotated by hand. It finds, on the null
// device and from any one rank's tape, what otherwise shows as a slightly wrong gradient: a missing or
// doubled collective.
//
// Leaves are the batch: rows on the data and context axes, replicated on the tensor axis. Where tokens leave
// for the ranks of their experts, values pass from the view of tokens to that of experts, and back where the
// sums return (parallel/axes.h). A replicated activation must not meet a varying one: its cotangent would be
// a part, and copy_to_axis is missing. A replicated parameter may: then its gradient is a part, and must be
// summed over the axis (parallel/gradient_sums.h).
#pragma once
#include <array>
#include <map>

#include "ops/axis_rules.h"
#include "parallel/axes.h"

namespace ingot {

/// The types of one value; replicate on axes of one rank and of the other view.
struct ValueTypes {
  bool experts = false;  ///< which view
  std::array<AxisType, kAxes> types = {};
  AxisType on(Axis a) const { return types[static_cast<size_t>(a)]; }
  void set(Axis a, AxisType t) { types[static_cast<size_t>(a)] = t; }
  std::string str(const Axes& axes,
                  int rank) const;  ///< "data varying by rows, tensor partial": its axes of several ranks
  bool operator==(const ValueTypes&) const = default;
};

struct AxisTypes {
  std::map<int32_t, ValueTypes> values;  ///< by the tape's id
  std::map<int, ValueTypes>
      gradients;  ///< by trainable parameter, of those that the tape used; on axes that cut it: parts
};

/// Follows c.tape, which ran with c as `groups` joined it. `received`: what leaves are that came from another
/// pipeline stage. Throws Error that names the op, its segment, the axis and its inputs' types.
AxisTypes axis_types(const Context& c, const RankGroups& groups,
                     const std::map<int32_t, ValueTypes>& received = {});

}  // namespace ingot
