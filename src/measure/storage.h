// Speed of the storage of a folder: random transfers by size and number of concurrent threads.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/spread.h"

namespace ingot {

struct StorageOptions {
  std::string folder = ".";
  int64_t file_bytes = int64_t{256} << 20;
  std::vector<int> threads{1, 4, 16};
  std::vector<int64_t> bytes{4096, 65536, 1048576};  ///< transfer sizes: multiples of 4096
  double seconds = 0.1;                              ///< per trial
  int trials = 3;
};

/// One kind of transfer; spreads are over the trials.
struct StorageRow {
  bool write = false;
  int threads = 1;
  int64_t bytes = 0;
  Spread iops;     ///< transfers per second, all threads together
  Spread latency;  ///< median seconds of a transfer
  Spread slow;     ///< 99th percentile of the seconds of a transfer
  double bandwidth() const { return iops.median * static_cast<double>(bytes); }
};

struct StorageReport {
  std::string folder;
  /// Transfers bypass the page cache; false: the file system refuses that, so numbers include its memory.
  bool direct = false;
  int64_t file_bytes = 0;
  std::vector<StorageRow> rows;
  Spread sync;  ///< seconds to append a line to a file and have it on the storage
  /// The highest measured reads per second of this size; 0: none was measured.
  double most_reads(int64_t bytes) const;
};

/// Interleaves the trials of all kinds. Works on a temporary file in the folder. Throws Error if the folder
/// cannot hold it.
StorageReport measure_storage(const StorageOptions& options);

}  // namespace ingot
