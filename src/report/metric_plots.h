// The plots of a report: the metrics of one run, or of several over each other. Which metric belongs to
// which figure follows from its name (metrics.h); those with a title of their own are listed in
// metric_plots.cpp, and every other scalar has a figure too.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "report/metrics.h"

namespace ingot {

/// The rows of a run, under the name that the legend has for it.
struct LabelledRows {
  std::string label;
  std::vector<MetricRow> rows;  ///< ascending steps
};

/// Steps at which a scalar was written, and its values.
struct MetricCurve {
  std::vector<double> steps, values;
};
MetricCurve curve_of(const std::vector<MetricRow>& rows, const std::string& metric);

/// What stands in the middle of the names `prefix`<middle>`suffix`, of scalars or of lists, in order of
/// appearance.
std::vector<std::string> middles(const std::vector<MetricRow>& rows, const std::string& prefix,
                                 const std::string& suffix, bool lists = false);

/// What must stand beside every loss of a run; "" for a causal model.
std::string mark_of_losses(const std::vector<MetricRow>& rows);

/// HTML of the figures; "" without rows.
std::string metric_plots(std::span<const LabelledRows> runs);
/// Tokens and hours of each run by step, as the page's script reads them.
std::string clocks_json(std::span<const LabelledRows> runs);

}  // namespace ingot
