// See peak.h.
#include "device/cpu/peak.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/parallel.h"
#include "device/cpu/memory_rate.h"
#include "device/cpu/peak_kernels.h"
#include "device/cpu/rounds.h"

namespace ingot {
namespace {

double median_of(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double read_gbs(int threads) {
  constexpr int64_t kBytes = int64_t{48} << 20;  // per thread: beyond its share of the caches, yet quick to touch
  MemoryBench bench(threads, kBytes);
  double best = 0;
  for (int trial = 0; trial < 2; ++trial) best = std::max(best, bench.rate(MemoryPass::read, threads, kBytes, 0));
  return best * 1e-9;
}

double peak_gflops(int threads, int64_t (*rounds)(int64_t, float*)) {
  if (threads <= 0) threads = num_threads();
  const int64_t steps = active_isa() == Isa::generic ? 50'000 : 1'000'000;
  std::atomic<int64_t> flops{0};
  const double median = median_of(round_times(threads, 5, [&](int, int) {
    float sink[4] = {0.5f, 0.25f, 0.0f, 0.0f};
    flops = rounds(steps, sink);
  }));
  return static_cast<double>(flops) * static_cast<double>(steps) * threads / median * 1e-9;
}

}  // namespace

double fma_peak_gflops(int threads) {
  return peak_gflops(threads, INGOT_ISA_CALL(peak_fma));
}

double dot_peak_gflops(int threads) {
  return active_isa() == Isa::avx512bf16 ? peak_gflops(threads, INGOT_ISA_CALL(peak_dot)) : fma_peak_gflops(threads);
}

MachinePeak machine_peak(int threads) {
  if (threads <= 0) threads = num_threads();
  return {fma_peak_gflops(threads), dot_peak_gflops(threads), read_gbs(threads)};
}

}  // namespace ingot
