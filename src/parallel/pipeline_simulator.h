// Executes the tables of all ranks without data: proves that a schedule can run, and computes how long it
// takes and how many micro-batches are live. Times are those of sends that do not wait for their receiver. A
// second check proves that the ranks also finish where only PipelineShape::messages_held() messages are in
// flight between two ranks, as in pipeline.h.
#pragma once
#include <vector>

#include "parallel/pipeline_schedule.h"

namespace ingot {

/// Times of one virtual stage, in any unit. A joint backward takes both halves.
struct StageCost {
  double forward = 1, backward_input = 1, backward_weight = 1;
  double backward() const { return backward_input + backward_weight; }
};

/// Equal virtual stages, each 1 / chunks of the cost of a rank.
std::vector<StageCost> even_costs(const PipelineShape& shape, const StageCost& rank_cost);

struct Simulation {
  double time = 0;
  std::vector<double> busy;  ///< by rank
  /// By rank: most (micro-batch, chunk) pairs between the begin of forward and the end of backward.
  std::vector<int> peak_live;
  int merged_pairs = 0;
  /// Idle time of the busiest rank, as a fraction of its busy time.
  double bubble() const;
};

/// `costs` by virtual stage; `transfer`: time between the end of a work and the begin of one on another rank
/// that depends on it. Throws InternalError that names rank and work for a table that cannot run: a work is
/// missing, duplicated or out of order, a pair depends on itself, messages between two ranks cross, or ranks
/// wait for each other.
Simulation simulate(const PipelineSchedule& schedule, const std::vector<StageCost>& costs,
                    double transfer = 0);

}  // namespace ingot
