// See peak.h.
#include "device/cpu/peak.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/parallel.h"
#include "device/cpu/peak_kernels.h"
#include "device/cpu/rounds.h"

namespace ingot {
namespace {

double best_of(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

double read_gbs(int threads) {
  constexpr int64_t kBytes = int64_t{48}
                             << 20;  // per thread: beyond its share of the caches, yet quick to touch
  const std::unique_ptr<void, void (*)(void*)> memory(
      std::aligned_alloc(64, static_cast<size_t>(kBytes * threads)), std::free);
  char* data = static_cast<char*>(memory.get());
  if (data == nullptr) return 0;
  const double best = best_of(round_times(threads, 4, [&](int t, int r) {
    float sink[4] = {};
    if (r == 0) std::fill_n(data + t * kBytes, kBytes, 0);  // first touch; never the best round
    INGOT_ISA_CALL(peak_read)(data + t * kBytes, kBytes, sink);
  }));
  return static_cast<double>(kBytes) * threads / best * 1e-9;
}

double peak_gflops(int threads, int64_t (*rounds)(int64_t, float*)) {
  if (threads <= 0) threads = num_threads();
  const int64_t steps = active_isa() == Isa::generic ? 1000 : 60000;
  std::atomic<int64_t> flops{0};
  const double best = best_of(round_times(threads, 7, [&](int, int) {
    float sink[4] = {0.5f, 0.25f, 0.0f, 0.0f};
    flops = rounds(steps, sink);
  }));
  return static_cast<double>(flops) * static_cast<double>(steps) * threads / best * 1e-9;
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
