// What the steps of a run that starts here will take: the plan's simulation (run_time.h) with the rates that
// the preflight measured of this machine. A run records it beside what it measures (train/run_accuracy.h).
#pragma once
#include <vector>

#include "measure/cluster.h"
#include "train/run_accuracy.h"

namespace ingot {

/// This machine as a cluster of one device, its threads together: rates from the preflight, and the shares
/// of them that products and attention reach here (docs/performance.md).
Cluster this_machine(const Preflight& measured);

/// One for each phase of a recipe that names its vocabulary, at the phase's first batch size, under the
/// memory policy of the preflight. Not predicted, with the reason: runs of several ranks, whose links nobody
/// measured. Of a source that samples replies, its work at a share of the products' rate.
std::vector<StepForecast> forecast_steps(const Recipe& recipe, int ranks, const Preflight& measured);

}  // namespace ingot
