// Runs the tables of all ranks on paper: proves that a schedule can run, and says how long it takes and how
// many micro-batches are alive. Times are those of sends that do not wait for their receiver. That the ranks
// come to an end also where only PipelineShape::messages_held() are on their way on an edge, as pipeline.h
// has it, is checked apart.
#pragma once
#include <vector>

#include "parallel/pipeline_schedule.h"

namespace ingot {

/// Times of one virtual stage, in any unit. A joint backward takes both halves.
struct StageCost {
  double forward = 1, backward_input = 1, backward_weight = 1;
  double backward() const { return backward_input + backward_weight; }
};

/// Every virtual stage alike, at 1 / chunks of a rank's cost.
std::vector<StageCost> even_costs(const PipelineShape& shape, const StageCost& rank_cost);

struct Simulation {
  double time = 0;
  std::vector<double> busy;    ///< by rank
  std::vector<int> peak_live;  ///< by rank: (micro-batch, chunk) pairs between the begin of forward and the
                               ///< end of backward
  int merged_pairs = 0;
  /// Time that the busiest rank waits, as a share of what it works.
  double bubble() const;
};

/// `costs` by virtual stage; `transfer`: time between the end of a work and the begin of one on another rank
/// that needs it. Throws InternalError that names the rank and the work for a table that cannot run: a work
/// is missing, twice or out of order, a pair depends on itself, messages of an edge cross, ranks wait for
/// each other.
Simulation simulate(const PipelineSchedule& schedule, const std::vector<StageCost>& costs,
                    double transfer = 0);

}  // namespace ingot
