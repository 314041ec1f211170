// Checks a model on a layout of ranks before anything runs. Every rank's training pass is recorded on the
// null device, with communicators that send nothing (comm/recording.h), and three things are checked:
//   - the types of all values on all axes (axis_types.h): a missing or doubled collective;
//   - the ranks of a group record the same collectives in the same order, else a run would hang;
//   - each gradient is summed over exactly the ranks that have partial sums of it (gradient_sums.h).
// The check takes no memory for weights, activations or gradients.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/decoder.h"
#include "models/stage.h"
#include "models/stage_boundary.h"
#include "parallel/gradient_sums.h"
#include "parallel/pipeline_groups.h"

namespace ingot {

struct DryRunLayout {
  Grid grid;
  RankOptions options;
  PipelineLayout stages;
};

/// One rank's groups in a world of recording communicators.
struct DryRunRank {
  DryRunRank(const ParameterTable& table, const DryRunLayout& layout, int rank);
  Placement placement() const { return pipe.placement(groups.placement()); }
  RecordingWorld world;
  RankGroups groups;
  PipelineGroups pipe;
};

/// A tape on the null device, for a rank's share of two sequences; its parameters have no memory.
struct DryRunTape {
  DryRunTape(const ParameterTable& table, const DryRunRank& rank);
  int64_t rows() const { return chunks ? chunks->count() : whole.count; }
  Value leaf(const Shape& shape, DType type, bool requires_grad = false);
  BatchLayout whole;
  std::vector<int32_t> positions;
  std::optional<ContextRows> chunks;
  WeightSet weights;
  GradientBuffer sink;
  CountingArena arena;
  Tape tape;
  Context c;
};

/// One pass of one rank through one (virtual) pipeline stage, from the types of what the stage before sent.
struct DryRunStage : DryRunTape {
  DryRunStage(const Decoder& decoder, const DryRunRank& rank, int stage,
              const std::vector<ValueTypes>& received);
  AxisTypes types;
  std::vector<ValueTypes> sent;
};

/// What training does with gradients that are written (train/step.cpp).
void reduce_as_training_does(const ParameterTable& table, DryRunRank& rank, GradientBuffer& gradients);

/// What a test changes and sees.
struct LayoutCheckHooks {
  std::function<void(DryRunRank&, GradientBuffer&)>
      reduce;                                        ///< in place of training's reduction of gradients
  std::function<void(const DryRunStage&)> recorded;  ///< called for every tape
  bool sums_in_memory = false;  ///< checks gradient sums under ShardLevel::full too, which takes memory
};

/// Throws Error that names the axis, the op or parameter, and the types or groups where the layout is wrong.
/// Returns what it could not check, in words; empty: nothing. Cost, of ZAYA layers on a busy core: 0.2 s for
/// 32 ranks of 10 layers, 0.8 s for 32 of 40, 7 s for 128 of 40; it grows faster than the number of ranks.
std::string check_layout(const Decoder& decoder, const DryRunLayout& layout,
                         const LayoutCheckHooks& hooks = {});

}  // namespace ingot
