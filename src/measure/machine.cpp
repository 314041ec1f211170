// See machine.h: the measurements.
#include "measure/machine.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/build_info.h"
#include "base/error.h"
#include "base/parallel.h"
#include "comm/cores.h"
#include "device/machine/peak.h"
#include "device/simd/isa.h"
#include "measure/doctor_parts.h"

namespace ingot {
namespace {

constexpr int64_t kSmallest = int64_t{16} << 10;
constexpr int64_t kUnit = 2048;  // of a working set (memory_rate.h)

int64_t largest_set(const MachineOptions& o, const std::vector<CacheLevel>& caches) {
  const int64_t size =
      (o.largest > 0 ? o.largest : beyond_caches(caches, o.threads.front(), o.threads.back())) / kUnit *
      kUnit;
  if (size < kSmallest)
    throw Error(fmt::format("the largest working set is {} bytes", o.largest), "give at least 16KiB");
  return size;
}

std::vector<int64_t> working_sets(int64_t largest) {
  std::vector<int64_t> sizes;
  for (int64_t size = kSmallest; size < largest; size *= 4) sizes.push_back(size);
  sizes.push_back(largest);
  return sizes;
}

void measure_arithmetic(const MachineOptions& o, std::vector<ArithmeticRow>& rows) {
  struct Trial {
    double fma, dot;
  };
  const auto trials = interleaved(o.trials, o.threads.size(), [&](size_t i) {
    return Trial{fma_peak_gflops(o.threads[i]), dot_peak_gflops(o.threads[i])};
  });
  for (size_t i = 0; i < o.threads.size(); ++i)
    rows.push_back({o.threads[i], spread_over(trials[i], &Trial::fma), spread_over(trials[i], &Trial::dot)});
}

void measure_memory(const MachineOptions& o, const std::vector<CacheLevel>& caches,
                    std::vector<MemoryRow>& rows) {
  const int64_t largest = largest_set(o, caches);
  for (const int threads : o.threads)
    for (const int64_t bytes : working_sets(largest))
      for (const MemoryPass pass : kEveryMemoryPass)
        rows.push_back({pass, threads, bytes, level_of(caches, threads, bytes), {}});
  MemoryBench bench(o.threads.back(), largest);
  const auto rates = interleaved(o.trials, rows.size(), [&](size_t r) {
    return bench.rate(rows[r].pass, rows[r].threads, rows[r].bytes, o.seconds);
  });
  for (size_t r = 0; r < rows.size(); ++r) rows[r].rate = spread_of(rates[r]);
}

}  // namespace

std::vector<CacheLevel> cache_levels(const std::string& root) {
  std::vector<CacheLevel> levels;
  for (int i = 0; i < 8; ++i) {
    const auto entry = [&](const char* name) {
      return doctor::line_of(root, fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/{}", i, name));
    };
    const std::string level = entry("level"), size = entry("size"), cores = entry("shared_cpu_list");
    if (level.empty() || size.empty() || entry("type") == "Instruction") continue;
    const int64_t unit = size.back() == 'M' ? int64_t{1} << 20 : size.back() == 'K' ? int64_t{1} << 10 : 1;
    const int sharing = cores.empty() ? 1 : static_cast<int>(parse_cores(cores, "shared_cpu_list").size());
    levels.push_back({"L" + level, std::atoll(size.c_str()) * unit, sharing});
  }
  std::sort(levels.begin(), levels.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  return levels;
}

std::string level_of(const std::vector<CacheLevel>& levels, int threads, int64_t bytes) {
  for (const CacheLevel& level : levels)
    if (bytes * std::min(threads, level.cores) <= level.bytes) return level.name;
  return "memory";
}

int64_t beyond_caches(const std::vector<CacheLevel>& levels, int fewest, int most) {
  const CacheLevel last = levels.empty() ? CacheLevel{"", int64_t{32} << 20, fewest} : levels.back();
  const int64_t wanted = std::max(4 * last.bytes, 16 * last.bytes / std::min(fewest, last.cores));
  const int64_t told = 1024 * std::atoll(doctor::field_of("/", "/proc/meminfo", "MemAvailable").c_str());
  const int64_t all = machine_info().memory_bytes, free = told > 0 ? std::min(told, all) : all;
  return std::max(int64_t{16} << 20, std::min(wanted, free / 8 / most)) / kUnit * kUnit;
}

std::vector<int> thread_counts(int all) {
  std::vector<int> counts;
  for (int n = 1; n < all; n *= 2) counts.push_back(n);
  counts.push_back(all);
  return counts;
}

MachineReport measure_machine(const MachineOptions& options) {
  MachineOptions o = options;
  if (o.threads.empty()) o.threads = thread_counts(num_threads());
  std::sort(o.threads.begin(), o.threads.end());
  if (o.threads.front() < 1 || o.threads.back() > 1024)
    throw Error("threads to measure with must be from 1 to 1024", "correct --threads");
  if (o.trials < 1) throw Error(fmt::format("{} trials", o.trials), "give at least one");
  MachineReport report;
  report.processor = machine_info().cpu;
  report.isa = isa_name(active_isa());
  report.caches = cache_levels();
  if (o.arithmetic) measure_arithmetic(o, report.arithmetic);
  if (o.memory) measure_memory(o, report.caches, report.memory);
  if (o.storage) report.storage = measure_storage(o.disk);
  return report;
}

}  // namespace ingot
