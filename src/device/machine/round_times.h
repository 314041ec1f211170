// Times rounds of work on several threads, to measure the machine: the threads start every round together,
// and its time is that of the slowest.
#pragma once
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace ingot {

/// Runs body(thread, round) `rounds` times on each of `threads` threads of its own (the caller is one);
/// seconds by round.
template <class Body>
std::vector<double> round_times(int threads, int rounds, const Body& body) {
  std::vector<double> longest(static_cast<size_t>(rounds * threads));
  std::atomic<int> arrived{0};
  const auto run = [&](int t) {
    for (int r = 0; r < rounds; ++r) {
      ++arrived;
      while (arrived.load() < (r + 1) * threads) std::this_thread::yield();
      const double start = monotonic_seconds();
      body(t, r);
      longest[static_cast<size_t>(r * threads + t)] = monotonic_seconds() - start;
    }
  };
  std::vector<std::jthread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(run, t);
  run(0);
  workers.clear();
  std::vector<double> times;
  for (int r = 0; r < rounds; ++r)
    times.push_back(*std::max_element(longest.begin() + r * threads, longest.begin() + (r + 1) * threads));
  return times;
}

}  // namespace ingot
