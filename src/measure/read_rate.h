// How fast all threads read memory: the limit of decoding, and of every operation that its bytes bind.
#pragma once
#include "device/machine/memory_rate.h"

namespace ingot {

/// Holds a working set of beyond_caches() bytes (machine.h) for each thread, touched. What machine_peak() says of reading is a quick
/// look at sets of which large caches keep a part.
class ReadRate {
 public:
  explicit ReadRate(int threads);
  /// Bytes per second, of about 0.1 s. Starts its own threads; not while kernels run.
  double operator()() { return bench_.rate(MemoryPass::read, threads_, bytes_, kSeconds); }

 private:
  static constexpr double kSeconds = 0.1;
  int threads_;
  int64_t bytes_;
  MemoryBench bench_;
};

}  // namespace ingot
