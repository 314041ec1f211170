// See peak.h.
#include "device/machine/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "device/machine/memory_rate.h"
#include "device/machine/peak_kernels.h"
#include "device/machine/round_times.h"
#include "device/memory/pages.h"

namespace ingot {
namespace {

double median_of(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double read_gbs(int threads) {
  // Per thread: quick to touch; measure/read_rate.h goes beyond every cache.
  constexpr int64_t kBytes = int64_t{48} << 20;
  MemoryBench bench(threads, kBytes);
  double best = 0;
  for (int trial = 0; trial < 2; ++trial)
    best = std::max(best, bench.rate(MemoryPass::read, threads, kBytes, 0));
  return best * 1e-9;
}

using FlopLoop = int64_t (*)(int64_t, float*);

FlopLoop fma_loop() {
  return INGOT_ISA_CALL(peak_fma);
}
FlopLoop dot_loop() {
  return active_isa() == Isa::avx512bf16 ? INGOT_ISA_CALL(peak_dot) : fma_loop();
}

/// Of `count` runs the median, or for `best` the fastest.
double rate_of(FlopLoop loop, int threads, int count, int64_t steps, bool best) {
  if (threads <= 0) threads = num_threads();
  if (active_isa() == Isa::generic) steps /= 20;
  std::atomic<int64_t> flops{0};
  const std::vector<double> times = round_times(threads, count, [&](int, int) {
    float sink[4] = {0.5f, 0.25f, 0.0f, 0.0f};
    flops = loop(steps, sink);
  });
  const double seconds = best ? *std::min_element(times.begin(), times.end()) : median_of(times);
  return static_cast<double>(flops) * static_cast<double>(steps) * threads / seconds * 1e-9;
}

double sustained_gflops(FlopLoop loop, int threads) {
  return rate_of(loop, threads, 5, 1'000'000, false);
}
double undisturbed_gflops(FlopLoop loop, int threads) {
  return rate_of(loop, threads, 7, 60'000, true);
}

}  // namespace

double fma_peak_gflops(int threads) {
  return sustained_gflops(fma_loop(), threads);
}

double dot_peak_gflops(int threads) {
  return sustained_gflops(dot_loop(), threads);
}

namespace {

/// Waits until `begin`, and returns it; now where that is past, or on another host's clock.
double wait_until(double begin) {
  const double now = monotonic_seconds();
  if (begin < now || begin > now + 1) return now;
  while (monotonic_seconds() < begin) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return begin;
}

}  // namespace

double shared_fma_gflops(double seconds, int threads, double begin) {
  if (threads <= 0) threads = num_threads();
  const FlopLoop loop = fma_loop();
  std::atomic<int64_t> flops{0};
  const double end = wait_until(begin) + seconds;
  round_times(threads, 1, [&](int, int) {
    constexpr int64_t kSteps = 20'000;
    float sink[4] = {0.5f, 0.25f, 0.0f, 0.0f};
    while (monotonic_seconds() < end) flops += loop(kSteps, sink) * kSteps;
  });
  return static_cast<double>(flops) / seconds * 1e-9;
}

double shared_read_gbs(double seconds, int threads, double begin) {
  if (threads <= 0) threads = num_threads();
  constexpr int64_t kBytes = int64_t{48} << 20;
  MemoryBench bench(threads, kBytes);
  const double end = wait_until(begin) + seconds;
  double bytes = 0, time = 0;
  while (monotonic_seconds() < end) {
    const double begin = monotonic_seconds();
    const double rate = bench.rate(MemoryPass::read, threads, kBytes, 0.25 * seconds);
    const double took = monotonic_seconds() - begin;
    bytes += rate * took, time += took;
  }
  return bytes / time * 1e-9;
}

double shared_copy_gbs(double seconds, int threads, double begin) {
  if (threads <= 0) threads = num_threads();
  constexpr int64_t kBytes = int64_t{48} << 20, kPiece = int64_t{4} << 20;
  const auto memory = [] {
    const std::shared_ptr<char> m(static_cast<char*>(system_allocate(kBytes)),
                                  [](char* p) { system_release(p, kBytes); });
    std::memset(m.get(), 1, kBytes);
    return m;
  };
  const std::shared_ptr<char> from = memory(), to = memory();
  std::atomic<int64_t> copied{0};
  const double end = wait_until(begin) + seconds;
  round_times(threads, 1, [&](int thread, int) {
    for (int64_t piece = thread; monotonic_seconds() < end; piece += threads) {
      const int64_t at = piece * kPiece % kBytes;
      std::memcpy(to.get() + at, from.get() + at, kPiece);
      copied += kPiece;
    }
  });
  return static_cast<double>(copied) / seconds * 1e-9;
}

double shared_fresh_gbs(double seconds, double begin) {
  constexpr int64_t kBytes = int64_t{4} << 20;
  void* const pages = reserve_addresses(kBytes, true);
  int64_t rounds = 0;
  const double start = wait_until(begin);
  for (; rounds == 0 || monotonic_seconds() < start + seconds; ++rounds) {
    std::memset(pages, 1, kBytes);
    give_back_pages(pages, kBytes);
  }
  const double took = monotonic_seconds() - start;
  release_addresses(pages, kBytes);
  return static_cast<double>(rounds * kBytes) / took * 1e-9;
}

MachinePeak machine_peak(int threads) {
  if (threads <= 0) threads = num_threads();
  return {undisturbed_gflops(fma_loop(), threads), undisturbed_gflops(dot_loop(), threads),
          read_gbs(threads)};
}

}  // namespace ingot
