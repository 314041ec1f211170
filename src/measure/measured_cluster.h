// A cluster file of the machine that is here: what `ingot bench cluster` measures, with the parts of the
// other benches, as a Cluster (cluster.h). A device is what one rank has: all cores where one runs, a rank's
// part of them under `ingot launch`. All ranks measure at once, as they run.
#pragma once
#include <string>
#include <vector>

#include "comm/measure.h"
#include "comm/world.h"
#include "measure/cluster.h"
#include "measure/profile.h"
#include "measure/storage.h"

namespace ingot {

struct ClusterMeasureOptions {
  std::string name;                            ///< of the cluster; empty: the processor's
  std::string preset = "llama-small";          ///< whose ops are measured
  int64_t vocab = 8192;                        ///< of the preset
  std::vector<int64_t> sizes{128, 512, 2048};  ///< rows and columns of products
  std::vector<int64_t> depths{256, 1024};      ///< length of their sums
  std::vector<int64_t> lengths{256, 1024};     ///< tokens of a sequence, for attention
  std::vector<int64_t> messages;               ///< bytes, ascending
  StorageOptions disk;                         ///< a file of 0 bytes: the storage is not measured
  bool kernels = true;                         ///< points of ops too
  int trials = 5;
  double seconds = 0.01;       ///< of a trial of a kernel, at least
  double comm_seconds = 0.05;  ///< of a collective
};

/// The links of ranks that share a memory of this bandwidth: a collective of n ranks takes (n - 1) (latency +
/// f bytes / bandwidth), f = 2 for all_reduce, else 1 (measure/fabric.h).
struct LinkFit {
  double gb_per_s = 0, latency_us = 0;
  double residual = 0;  ///< median share by which a measured time differs from the fit
};
/// Least squares of relative errors over the collectives among them. Needs one of two ranks or more.
LinkFit fit_shared_memory(const std::vector<CommMeasurement>& measured);
/// A curve for each collective and number of ranks, without points that took less time than smaller ones.
std::vector<BandwidthCurve> curves_of(const std::vector<CommMeasurement>& measured,
                                      const std::string& source);

/// What ops reach in the profile's steps, by their sizes, on a machine of `f32_tflops`: where the profile
/// measured another peak around its steps, seconds are scaled by it. By the bandwidth `gb_per_s` an update's
/// bytes are told from its products. Products of all passes of a shape and op are one point. Of steps the
/// median counts, and attention of sequences that documents divide as that of whole ones.
std::vector<DevicePoint> points_of(const ProfileReport& profile, double f32_tflops, double gb_per_s);
/// Those of a run's steps, and of the others those that are further away in every one of its points than a
/// factor of two: a step has caches and neighbours that a kernel alone has not.
std::vector<DevicePoint> preferred_points(std::vector<DevicePoint> of_run,
                                          const std::vector<DevicePoint>& others);

/// With the points of runs' profiles. Called by all ranks, which get the same. Uses the thread pool; not
/// while kernels run. Throws Error where the ranks are on several hosts.
Cluster measure_cluster(World& world, const ClusterMeasureOptions& options,
                        const std::vector<ProfileReport>& profiles = {});

/// What was measured, in a few lines.
std::string describe_measured(const Cluster& cluster);
/// The file, after a check that it reads back.
std::string cluster_file(const Cluster& cluster);

}  // namespace ingot
