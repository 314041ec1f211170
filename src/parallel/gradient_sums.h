// Whether each gradient is summed over exactly the ranks that have partial sums of it: what the derived types
// demand (axis_types.h) against what the code that sums does, which is run with recording communicators
// (comm/recording.h).
#pragma once
#include <functional>

#include "comm/recording.h"
#include "parallel/axis_types.h"

namespace ingot {

/// One sum of (a piece of) a parameter's gradient over ranks of the world.
struct GradientSum {
  std::string group;
  std::vector<int> ranks;
  bool kept = true;  ///< this rank gets (a shard of) the result
};

/// By trainable parameter that a rank holds, in order.
using GradientSums = std::map<int, std::vector<GradientSum>>;

/// The sums that `reduce` makes of written gradients, on `world`'s rank.
GradientSums recorded_sums(RecordingWorld& world, const ParameterTable& table, const Placement& placement,
                           const std::function<void(GradientBuffer&)>& reduce);

/// One rank of a grid: the types of its gradients, and how they are summed.
struct RankGradients {
  std::map<int, ValueTypes> types;
  GradientSums sums;
};

/// `ranks`: all ranks of the grid. Every rank that uses a parameter must contribute exactly once to the sum
/// of each rank that differs from it only on the axes on which the gradient is partial, in each pipeline
/// stage that uses the parameter. Throws Error that names parameter, axis, types and groups where a
/// contribution is missing, doubled or wrong.
void check_gradient_sums(const Axes& axes, const ParameterTable& table,
                         const std::vector<RankGradients>& ranks);

}  // namespace ingot
