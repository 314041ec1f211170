// What the report says of post-training: bars of what each phase's last evaluation solved, the course of
// reinforcement learning, accuracy over decoded tokens. HTML fragments; "" where a run has none of it.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "report/metric_plots.h"
#include "report/reason_results.h"

namespace ingot {

/// Name and last step of each phase.
struct PhaseEnd {
  std::string name;
  int64_t last_step = 0;
};
/// Of a recipe as run.json and config.toml keep it; empty where it has no phases.
std::vector<PhaseEnd> phase_ends(const std::string& config_toml);

/// A card for each task and metric that several phases measured: a bar for each phase, its last value in it,
/// with standard errors where they were recorded.
std::string phase_bars(const std::vector<MetricRow>& rows, std::span<const PhaseEnd> phases);

/// Whether rl_section() has a figure for a metric.
bool has_rl_figure(const std::string& metric);
/// The figures of phases of kind rl, and in words how many recorded log-probabilities training did not
/// reproduce.
std::string rl_section(std::span<const LabelledRows> runs);

/// A figure for each set of problems, and a table of all numbers with what they cost.
std::string reason_section(const std::vector<ReasonResult>& results);

}  // namespace ingot
