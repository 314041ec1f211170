// `ingot doctor --expect`: whether a machine does what a cluster file says of it.
#pragma once
#include <string>
#include <vector>

#include "measure/doctor.h"
#include "measure/measured_cluster.h"

namespace ingot {

/// What a self-test measures: rates, links of the ranks and storage, in seconds. No kernels.
ClusterMeasureOptions self_test_options(const std::string& folder, int64_t disk_bytes);

/// A finding for each number that both have: of the whole host (rates of all devices that share one), of
/// all_reduce and all_to_all among the ranks at the largest size measured, of the first storage. Slower by
/// more than `band` (a share) is a problem with its remedy, faster a note: the file describes another
/// machine.
std::vector<Finding> compare_with(const Cluster& expected, const Cluster& measured, double band);

}  // namespace ingot
