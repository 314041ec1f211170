// Compares two run folders: recipe, build and machine, and the first step with different losses.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/config_node.h"
#include "base/file_system.h"

namespace ingot {

struct MetricDifference {
  std::string name;
  int64_t step = 0;
  double left = 0, right = 0;
};

struct RunDifference {
  std::vector<ConfigDifference> config;  ///< by recipe path
  std::vector<ConfigDifference> record;  ///< run.json, by "group.name", without the run's name and times
  std::vector<std::string> left_starts, right_starts;  ///< describe_starts()
  int64_t left_steps = 0, right_steps = 0;
  /// The first common step whose losses differ in a bit; none if all are equal.
  std::optional<int64_t> first_loss_difference;
  /// Scalars that differ, at up to six common steps.
  std::vector<MetricDifference> metrics;
};

/// `renamed`: keys of recipes that had other names; either run may have been recorded with those. Error when
/// a folder has no run.json.
RunDifference compare_runs(FileSystem& fs, const std::string& left_folder, const std::string& right_folder,
                           std::span<const RenamedKey> renamed = {});
/// Text for a terminal.
std::string to_text(const RunDifference& difference, const std::string& left_name,
                    const std::string& right_name);

}  // namespace ingot
