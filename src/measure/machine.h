// Measures what a machine can do: arithmetic by threads, memory by working set, storage by threads and size of transfers.
// Trials take turns, so that what disturbs one hits all; a number is the median, its spread (most - least) / median. What
// `ingot bench machine` prints.
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
  int cores = 1;  ///< logical ones that share it
};
/// Of data, smallest first; of the machine's first core. `root` stands for "/".
std::vector<CacheLevel> cache_levels(const std::string& root = "/");

/// Where a working set of so many bytes for each of `threads` threads lies: the name of a cache that has room, or "memory".
std::string level_of(const std::vector<CacheLevel>& levels, int threads, int64_t bytes);

/// Bytes that each of `fewest` to `most` threads goes over for caches to keep little of it: sixteen times the share that one of the fewest
/// has of the last one, and four times all of it, because threads may be spread over several. For all of the most together an eighth
/// of the free memory at most, 16 MiB each at least. Of a set of twice the cache, processors that keep what they cast out read half from there.
int64_t beyond_caches(const std::vector<CacheLevel>& levels, int fewest, int most);

struct ArithmeticRow {
  int threads = 1;
  Spread fma_gflops;  ///< fp32 fused multiply-adds
  Spread dot_gflops;  ///< products of bf16 operands
};

struct MemoryRow {
  MemoryPass pass = MemoryPass::read;
  int threads = 1;
  int64_t bytes = 0;  ///< working set of a thread
  std::string level;
  Spread rate;  ///< bytes per second that the program reads and writes, all threads together
};

struct MachineOptions {
  bool arithmetic = true, memory = true, storage = true;
  std::vector<int> threads;  ///< ascending
  int64_t largest = 0;       ///< working set of a thread; 0: beyond_caches()
  double seconds = 0.02;     ///< of each trial of memory
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

/// Starts its own threads; not while kernels run.
MachineReport measure_machine(const MachineOptions& options);

/// {"format": 1, "processor", "isa", "caches": [...], "arithmetic": [...], "memory": [...], "storage": {...}, "loader": {...}};
/// rates in units per second, each with "median", "least" and "most". docs/measuring.md has the fields.
std::string to_json(const MachineReport& report);
/// Tables for people.
std::string to_text(const MachineReport& report);
/// One HTML file with plots that needs no network.
std::string render_machine_page(const MachineReport& report);

}  // namespace ingot
