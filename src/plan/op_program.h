// What one rank does in a pass, as a list: the kernels that the tape runs with their shapes, the transfers
// that it begins and where it waits for them. Recorded from the run's own passes on the null device
// (plan_step), so a plan's time follows the tape as its memory does.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "measure/fabric.h"
#include "measure/profile.h"
#include "parallel/pipeline_schedule.h"
#include "plan/rank_plan.h"

namespace ingot {

inline constexpr int64_t kNoLayerGroup = INT64_MIN;

struct PassStep {
  enum class Kind : uint8_t { compute, transfer, wait } kind = Kind::compute;
  TimeOf what = TimeOf::kernels;
  Direction direction = Direction::forward;
  std::string op;
  OpSizes sizes;
  /// Whose weights it may read, by depth_of_layer_group (nn/parameter.h): those of its segment's layer, of
  /// the embedding or the head; kNoLayerGroup: none.
  int64_t layer_group = kNoLayerGroup;
  double flops = 0, bytes = 0, wire_bytes = 0;
  std::string group;  ///< transfer: its ranks, a name in RankProgram::groups
  int handle = -1;    ///< transfer: it continues until the wait with this number; -1: waited for at once
};
using PassProgram = std::vector<PassStep>;
inline constexpr size_t kWorkKinds = 4;
/// By WorkKind; empty: the schedule has no such work.
using StagePrograms = std::array<PassProgram, kWorkKinds>;

struct RankProgram {
  std::vector<StagePrograms> chunks;
  std::map<std::string, GroupShape> groups;  ///< group_shapes()
  int64_t held_bytes = 0;                    ///< StepPlan::held_bytes
};

/// Ranks of an innermost domain that are used, so that tensor and expert groups that fit one do not straddle
/// two: of 72 with groups of 64, 64. Ranks fill domains in order. 0: there is one domain.
int64_t usable_domain(const Grid& grid, const Cluster& cluster);
/// How many ranks a group has, and how many of them share the domain of its first one.
GroupShape shape_of_group(const Communicator& group, const Grid& grid, const Cluster& cluster);

/// The axes over which a rank sends inside of passes.
std::map<std::string, GroupShape> group_shapes(const PaperRank& rank, const Cluster& cluster);

/// The passes of the largest micro-batch of a phase of the rank's recipe. `cluster`: where groups lie.
RankProgram record_program(const PaperRank& rank, size_t phase, const Cluster& cluster);

}  // namespace ingot
