// device/machine/peak: the measured limits are plausible, and the compiler has not folded the measuring loop
// away.
#include "device/machine/peak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "device/simd/isa.h"
#include "support/long_tests.h"

namespace ingot::peak_test {

TEST(Peak, IsPlausibleOnEveryInstructionSet) {
  const Isa before = active_isa();
  for (const Isa isa : kEveryIsa) {
    if (!isa_available(isa)) continue;
    force_isa(isa);
    const double gflops = fma_peak_gflops(1);
    EXPECT_GT(gflops, 0.01) << isa_name(isa);
    EXPECT_LT(gflops, 500.0) << isa_name(isa);  // 2 units x 16 lanes x 2 flops x 6 GHz = 384
    const double dot = dot_peak_gflops(1);
    EXPECT_GT(dot, 0.01) << isa_name(isa);
    EXPECT_LT(dot, 1000.0) << isa_name(isa);  // two products a lane
  }
  force_isa(before);
}

/// Twice as many threads as cores: what each reaches adds up to the machine's, not to more.
TEST(Peak, RatesOfThoseThatShareCoresAddUpToTheMachines) {
  INGOT_LONG_TEST("on a machine that does nothing else");
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  double alone = 0, least = 1e300;  // interleaved: a host's other guests come and go
  for (int trial = 0; trial < 5; ++trial) {
    alone = std::max(alone, shared_fma_gflops(0.05, cores));
    std::vector<double> rates(static_cast<size_t>(2 * cores));
    std::vector<std::jthread> together;
    for (double& rate : rates) together.emplace_back([&rate] { rate = shared_fma_gflops(0.05, 1); });
    together.clear();
    least = std::min(least, std::accumulate(rates.begin(), rates.end(), 0.0));
  }
  EXPECT_LT(least, 1.3 * alone);  // each alone would measure twice of it
}

/// Ranks that share cores begin together; a time on another host's clock, or one that is past, is now.
TEST(Peak, RatesOfASharedMachineBeginWhenAsked) {
  constexpr double kSeconds = 0.01, kAhead = 0.05;
  const auto fresh = [](double seconds, int, double begin) { return shared_fresh_gbs(seconds, begin); };
  for (double (*const rate)(double, int, double) :
       {shared_fma_gflops, shared_read_gbs, shared_copy_gbs, +fresh}) {
    const double begin = monotonic_seconds() + kAhead;
    EXPECT_GT(rate(kSeconds, 1, begin), 0);
    EXPECT_GE(monotonic_seconds(), begin + kSeconds);
    for (const double elsewhere : {-1e6, 1e6}) {
      const double now = monotonic_seconds();
      EXPECT_GT(rate(kSeconds, 1, now + elsewhere), 0);
      EXPECT_LT(monotonic_seconds(), now + 60);
    }
  }
}

TEST(Peak, BandwidthIsPlausible) {
  const MachinePeak peak = machine_peak(1);
  EXPECT_GT(peak.read_gbs, 0.05);
  EXPECT_LT(peak.read_gbs, 2000.0);
}

}  // namespace ingot::peak_test
