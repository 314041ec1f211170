// See expectation.h.
#include "measure/expectation.h"

#include <fmt/core.h>

#include <algorithm>

#include "measure/fabric.h"

namespace ingot {
namespace {

/// A number that both files have.
struct Compared {
  const char* topic;
  double expected, measured;
  const char* unit;
  const char* remedy;
};

Finding judge(const Compared& c, const std::string& file, double band) {
  const double share = c.measured / c.expected;
  Finding f;
  f.topic = c.topic;
  f.text = fmt::format("{:.3g} {}, {:.0f} % of the {:.3g} of '{}'", c.measured, c.unit, 100 * share,
                       c.expected, file);
  if (share < 1 - band)
    f.level = Finding::Level::problem, f.remedy = c.remedy;
  else if (share > 1 + band)
    f.level = Finding::Level::note,
    f.remedy = "the file describes a slower machine: measure this one with `ingot bench cluster`";
  return f;
}

/// Bus bandwidth of a collective of all ranks at the largest size that was measured, GB/s.
Compared compare_links(const Cluster& expected, const Cluster& measured, CommKind kind, const char* topic) {
  Compared result{
      topic, 0, 0, "GB/s",
      "`ingot bench comm` names slow ranks; look at where ranks are bound (ingot launch --topology) "
      "and at /dev/shm"};
  if (expected.links.empty()) return result;
  const auto n = static_cast<int>(measured.devices), domain = static_cast<int>(expected.links.front().ranks);
  for (const BandwidthCurve& c : measured.curves)
    if (c.collective == name_of(kind) && c.ranks == n) {
      result.measured = c.gb_per_s.back();
      result.expected = 1e-9 * Fabric(expected).bus_bandwidth(kind, {n, domain > 0 ? std::min(n, domain) : n},
                                                              c.bytes.back());
    }
  return result;
}

}  // namespace

ClusterMeasureOptions self_test_options(const std::string& folder, int64_t disk_bytes) {
  ClusterMeasureOptions o;
  o.kernels = false;
  o.seconds = 0.1, o.trials = 3;
  o.comm_seconds = 0.02;
  for (int64_t bytes = 4096; bytes <= int64_t{4} << 20; bytes *= 4) o.messages.push_back(bytes);
  constexpr int64_t kPage = 4096;
  o.disk.folder = folder, o.disk.file_bytes = disk_bytes / kPage * kPage;
  o.disk.bytes = {kPage, std::max(kPage, std::min<int64_t>(o.disk.file_bytes, int64_t{1} << 20))};
  o.disk.threads = {1, 4}, o.disk.seconds = 0.05, o.disk.trials = 3;
  return o;
}

std::vector<Finding> compare_with(const Cluster& expected, const Cluster& measured, double band) {
  constexpr const char* kCompute =
      "look for other programs, a lower clock and fewer cores than the file counts: ingot burnin";
  constexpr const char* kMemory = "look for empty memory channels, other programs and remote memory domains";
  constexpr const char* kStorage = "`ingot bench machine --parts=storage` shows it by size and threads";
  const auto here = static_cast<double>(expected.devices_per_node),
             ranks = static_cast<double>(measured.devices);
  const DeviceSpec &want = expected.device, &found = measured.device;
  const StorageSpec disk = expected.storage.empty() ? StorageSpec{} : expected.storage.front(),
                    now = measured.storage.empty() ? StorageSpec{} : measured.storage.front();
  const Compared all[] = {
      {"expected f32", want.rates.f32 * here, found.rates.f32 * ranks, "TFLOP/s", kCompute},
      {"expected bf16", want.rates.bf16 * here, found.rates.bf16 * ranks, "TFLOP/s", kCompute},
      {"expected bandwidth", want.bandwidth * here, found.bandwidth * ranks, "GB/s of memory", kMemory},
      compare_links(expected, measured, CommKind::all_reduce, "expected all_reduce"),
      compare_links(expected, measured, CommKind::all_to_all, "expected all_to_all"),
      {"expected reads", disk.read_gb_per_s, now.read_gb_per_s, "GB/s", kStorage},
      {"expected writes", disk.write_gb_per_s, now.write_gb_per_s, "GB/s", kStorage},
      {"expected IOPS", disk.iops, now.iops, "reads a second", kStorage}};
  std::vector<Finding> findings;
  for (const Compared& c : all)
    if (c.expected > 0 && c.measured > 0) findings.push_back(judge(c, expected.name, band));
  return findings;
}

}  // namespace ingot
