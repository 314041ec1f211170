// Whether gradients are summed over the ranks that have parts of them, once each: what types say
// (axis_types.h) against what the code that sums does, which runs on paper (comm/recording.h).
#pragma once
#include <functional>

#include "comm/recording.h"
#include "parallel/axis_types.h"

namespace ingot {

/// One sum of (a piece of) a parameter's gradient over ranks of the world.
struct GradientSum {
  std::string group;
  std::vector<int> ranks;
  bool kept = true;  ///< this rank gets (a share of) the result
};

/// By trainable parameter that a rank holds, in order.
using GradientSums = std::map<int, std::vector<GradientSum>>;

/// What `reduce` does to gradients that have been written, on `world`'s rank.
GradientSums recorded_sums(RecordingWorld& world, const ParameterTable& table, const Placement& placement,
                           const std::function<void(GradientBuffer&)>& reduce);

/// One rank of a grid: what its tapes' types say of gradients, and what is done to them.
struct RankGradients {
  std::map<int, ValueTypes> types;
  GradientSums sums;
};

/// Of all ranks of the grid. Every rank that uses a parameter contributes once to each rank's sum that its
/// part belongs to: those along the axes on which the gradient is partial, in each pipeline stage that uses
/// it. Error that names parameter, axis, types and groups where a part is missing, counts twice or should not
/// be there.
void check_gradient_sums(const Axes& axes, const ParameterTable& table,
                         const std::vector<RankGradients>& ranks);

}  // namespace ingot
