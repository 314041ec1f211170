// How fast a folder's storage is: random transfers by size and number of threads that ask at once.
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
  std::vector<int64_t> bytes{4096, 65536, 1048576};  ///< of a transfer: multiples of 4096, at most the file's
  double seconds = 0.1;                              ///< of each trial
  int trials = 3;
};

/// Of one kind of transfer; spreads are over trials.
struct StorageRow {
  bool write = false;
  int threads = 1;
  int64_t bytes = 0;
  Spread iops;     ///< transfers per second, all threads together
  Spread latency;  ///< median seconds of a transfer
  Spread slow;     ///< seconds that one in a hundred takes at least
  double bandwidth() const { return iops.median * static_cast<double>(bytes); }
};

struct StorageReport {
  std::string folder;
  bool direct =
      false;  ///< past the page cache; false: the file system refuses that, so numbers include its memory
  int64_t file_bytes = 0;
  std::vector<StorageRow> rows;
  /// The most transfers per second that reads of this size reached; 0: none was measured.
  double most_reads(int64_t bytes) const;
};

/// Trials of all kinds take turns, so that a disturbance hits all. Writes a file first and removes it. Throws Error where the
/// folder cannot hold it.
StorageReport measure_storage(const StorageOptions& options);

}  // namespace ingot
