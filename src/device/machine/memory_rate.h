// How fast threads move bytes through caches and memory, each over a working set of its own.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/enum.h"

namespace ingot {

enum class MemoryPass {
  read,
  write,   ///< ordinary stores; beyond the caches the processor reads the lines first
  stream,  ///< stores past the caches (non-temporal), where the instruction set has them
  copy,    ///< reads one half of the working set, writes the other
  add,     ///< writes the sums of two thirds of it to the other third
  triad    ///< the same with the second third times a number, as STREAM does (McCalpin, 1995)
};
constexpr auto enum_names(MemoryPass) {
  return names_in_order<MemoryPass>("read", "write", "stream", "copy", "add", "triad");
}
inline constexpr MemoryPass kEveryMemoryPass[] = {MemoryPass::read, MemoryPass::write, MemoryPass::stream,
                                                  MemoryPass::copy, MemoryPass::add,   MemoryPass::triad};

class MemoryBench {
 public:
  /// Memory for `threads` threads with working sets of up to `largest` bytes, touched by the thread that will
  /// use it.
  MemoryBench(int threads, int64_t largest);
  /// Bytes per second that the program reads and writes, `threads` threads together, each going over `bytes`
  /// (a multiple of 2048, at most `largest`) repeatedly for about `seconds`. Passes that read and write take
  /// the vectors, wide or narrow (peak_kernels.h), whose pass was faster just before. Starts its own threads;
  /// not while kernels run.
  double rate(MemoryPass pass, int threads, int64_t bytes, double seconds);

 private:
  std::vector<std::shared_ptr<std::byte>> areas_;
};

}  // namespace ingot
