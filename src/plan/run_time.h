// The time of a step of a whole run on a cluster: the programs of one rank of each stage (op_program.h),
// their kernels' times (op_cost.h), their transfers' (fabric.h), simulated (step_simulator.h).
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/run_plan.h"
#include "plan/step_simulator.h"

namespace ingot {

struct TimeFor {
  std::string type = "bf16";   ///< in which products compute: f32, bf16 or f8
  double degraded = 1;         ///< rate of the links between nodes, as a multiple
  bool traces = false;         ///< StepTime::spans
  std::map<int, double> slow;  ///< by position in the pipeline: how many times longer its kernels take
};

struct RunTime {
  StepTime step;
  std::vector<std::string> channels;
  std::array<double, 3> seconds_by_quality{};  ///< of kernels and transfers, by Quality, all stages
  double launch_share = 0;                     ///< of the kernels' time: between kernels, all stages
  double tokens_per_second = 0;                ///< of a device
  double model_tflops = 0;                     ///< of a device
  double utilisation = 0;                      ///< model FLOPs over the dense peak of the type
};

/// The rank that stands for a stage, and what it runs. Stages that are alike may share both.
struct StageRank {
  const PaperRank* rank = nullptr;
  const RankProgram* program = nullptr;
  bool operator==(const StageRank&) const = default;
};

/// One step of a phase of the ranks' recipe in a pipeline of these stages: all but model_tflops and
/// utilisation. `extends`: a step of many micro-batches is simulated until it repeats itself, and extended
/// from there.
RunTime time_stages(const std::vector<StageRank>& stages, size_t phase, int64_t micro_batches,
                    const Cluster& cluster, const TimeFor& what, bool extends = false);

/// Seconds of a micro-batch on all virtual stages of a layout together, which their ranks take at least:
/// kernels, and transfers that a pass waits for at once. Merged passes hide those: then whichever is longer,
/// kernels or the transfers of a channel.
double least_seconds(const std::vector<const RankProgram*>& stages, const Cluster& cluster,
                     const TimeFor& what, bool merged);

/// Seconds that the exchanges of a fully sharded rank's layers take in a micro-batch at least, one after the
/// other; 0 where weights are not sharded.
double gather_seconds(const PaperRank& rank, const Cluster& cluster, const TimeFor& what);

/// Throws Error where the cluster has fewer devices than the plan has ranks.
RunTime time_run(const RunPlan& plan, const Cluster& cluster, const TimeFor& what = {});

/// What a step of the rank that ends last goes to, in words: kernels by their purpose, then waits; they add
/// up to the step.
std::vector<std::pair<std::string, double>> purposes_of(const RunTime& time);
/// Whether the fullest rank fits a device, with the arithmetic.
std::string describe_fit(const RunPlan& plan, const Cluster& cluster);
std::string to_text(const RunTime& time);
std::string to_json(const RunTime& time);

}  // namespace ingot
