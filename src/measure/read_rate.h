// The bandwidth B at which all threads read memory: the limit of decoding and of every memory-bound op.
#pragma once
#include "device/machine/memory_rate.h"

namespace ingot {

/// Holds a touched working set of beyond_caches() bytes (machine.h) for each thread. machine_peak() measures
/// reading in less time, on smaller sets, part of which stays in large caches.
class ReadRate {
 public:
  explicit ReadRate(int threads);
  /// Bytes per second, of about 0.1 s. Starts its own threads; not while kernels run.
  double operator()() { return bench_.rate(MemoryPass::read, threads_, bytes_, kSeconds); }
  /// Reads the working set: caches then hold nothing older. Like the measurement.
  void sweep() { bench_.rate(MemoryPass::read, threads_, bytes_, 0); }

 private:
  static constexpr double kSeconds = 0.1;
  int threads_;
  int64_t bytes_;
  MemoryBench bench_;
};

}  // namespace ingot
