// How long a step takes: an event simulation of the schedule's table, one rank for each position in the
// pipeline, with its kernels in order on one compute resource, and transfers on the links of their level. A
// transfer that the tape does not wait for at once runs beside kernels, which it may slow down; two merged
// passes take turns as those of a run do (parallel/interleaved_passes). After the passes follow the sums of
// gradients, which begin as buckets complete, the update, and the exchange of new weights.
//
// Exact laws (tests): without transfers the step is that of parallel/pipeline_simulator.h; no cost that
// grows makes it shorter; the purposes of a rank's time add up to the step.
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "plan/op_program.h"

namespace ingot {

/// A step of a pass with its time.
struct TimedStep {
  PassStep::Kind kind = PassStep::Kind::compute;
  TimeOf what = TimeOf::kernels;
  double seconds = 0;
  int channel = 0;  ///< of a transfer
  int handle = -1;
};
using TimedProgram = std::vector<TimedStep>;
using TimedStage = std::array<TimedProgram, kWorkKinds>;

/// What follows the passes on a rank.
struct StepEnd {
  std::vector<double>
      buckets;          ///< seconds of each bucket's sum, in the order in which backward completes them
  double update = 0;    ///< norm, clip and optimizer
  double exchange = 0;  ///< of new weights
  int channel = 0;      ///< of the sums
};

/// What a rank does from one time to another, waits inside of it included.
enum class SpanOf { forward, backward, backward_weight, merged, sums, update, exchange };
constexpr auto enum_names(SpanOf) {
  return names_in_order<SpanOf>("forward", "backward", "weight gradients", "forward beside backward",
                                "sums of gradients", "update", "exchange of weights");
}
struct WorkSpan {
  int rank = 0;  ///< position in the pipeline
  SpanOf what = SpanOf::forward;
  double begin = 0, end = 0;
  int micro_batch = -1, chunk = 0;  ///< of a pass
};

struct StepInput {
  PipelineSchedule schedule;
  std::vector<TimedStage> stages;  ///< by virtual stage
  std::vector<StepEnd> ends;       ///< by position in the pipeline
  std::vector<double> slow;        ///< by position: its kernels take so many times as long; empty: 1
  double beside = 1;               ///< share of its rate that a kernel keeps while a transfer runs
  double message = 0;              ///< seconds from one stage to the next
  double ranks_per_core = 1;       ///< ranks that share a core, which those that wait leave to others
  std::vector<std::string> channels = {"links"};  ///< names of groups
  bool traces = false;                            ///< StepTime::spans
};

/// A rank's time, which adds up to the step.
struct RankTime {
  std::array<double, kTimesOf> busy{};  ///< by TimeOf
  /// By channel, of transfers inside of passes and at the end: waits, and what kernels beside them lose.
  std::map<std::string, double> exposed;
  double bubble = 0;  ///< waits for other stages
  int live = 0;       ///< most micro-batches x chunks between forward and backward
  double sum() const;
  double work() const { return sum() - bubble; }
};

struct StepTime {
  double seconds = 0;
  std::vector<RankTime> ranks;
  /// The rank whose own work ends last: what would have to become shorter.
  int critical = 0;
  int merged_pairs = 0;
  std::vector<WorkSpan> spans;  ///< where asked for; of a rank in their order
};

/// Throws InternalError for a table that cannot run.
StepTime simulate_step(const StepInput& input);

}  // namespace ingot
