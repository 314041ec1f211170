// `ingot bench machine`: arithmetic by number of threads, memory by working set, storage by threads and
// transfer size. Trials are interleaved; a number is the median of its trials, its spread (most - least) /
// median.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "device/machine/memory_rate.h"
#include "measure/loader_demand.h"
#include "measure/storage.h"

namespace ingot {

struct CacheLevel {
  std::string name;  ///< "L1"
  int64_t bytes = 0;
  int cores = 1;  ///< logical cores that share it
};
/// The data caches of the machine's first core, smallest first. `root` stands for "/".
std::vector<CacheLevel> cache_levels(const std::string& root = "/");

/// The smallest cache that holds a working set of `bytes` for each of `threads` threads, by name, or
/// "memory".
std::string level_of(const std::vector<CacheLevel>& levels, int threads, int64_t bytes);

/// Bytes of a working set per thread of which caches keep little, for `fewest` to `most` threads: 16 times
/// one thread's share of the last cache with the fewest threads, and at least 4 times the whole cache,
/// because threads may be spread over several. (Twice the cache is too little: with a victim cache half of it
/// is read from there.) At most an eighth of the free memory for all threads together, at least 16 MiB each.
int64_t beyond_caches(const std::vector<CacheLevel>& levels, int fewest, int most);

struct ArithmeticRow {
  int threads = 1;
  Spread fma_gflops;  ///< fp32 fused multiply-adds
  Spread dot_gflops;  ///< products of bf16 operands
};

struct MemoryRow {
  MemoryPass pass = MemoryPass::read;
  int threads = 1;
  int64_t bytes = 0;  ///< working set per thread
  std::string level;
  Spread rate;  ///< bytes read and written per second, all threads together
};

struct MachineOptions {
  bool arithmetic = true, memory = true, storage = true;
  std::vector<int> threads;  ///< ascending
  int64_t largest = 0;       ///< largest working set per thread; 0: beyond_caches()
  double seconds = 0.02;     ///< per memory trial
  int trials = 5;
  StorageOptions disk;
};

struct MachineReport {
  std::string processor, isa;
  std::vector<CacheLevel> caches;
  std::vector<ArithmeticRow> arithmetic;
  std::vector<MemoryRow> memory;
  std::optional<StorageReport> storage;
  std::optional<LoaderDemand> demand;  ///< filled by the caller
};

/// Powers of two up to `all`, and `all`.
std::vector<int> thread_counts(int all);

/// Starts its own threads; not to be called while kernels run.
MachineReport measure_machine(const MachineOptions& options);

/// {"format": 1, "processor", "isa", "caches": [...], "arithmetic": [...], "memory": [...], "storage": {...},
/// "loader": {...}}; rates in units per second, each with "median", "least" and "most". docs/measuring.md has
/// the fields.
std::string to_json(const MachineReport& report);
/// Tables for a terminal.
std::string to_text(const MachineReport& report);
/// One HTML file with plots that needs no network.
std::string render_machine_page(const MachineReport& report);

}  // namespace ingot
