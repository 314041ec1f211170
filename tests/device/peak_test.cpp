// device/machine/peak: the measured limits are plausible, and the compiler has not folded the measuring loop
// away.
#include "device/machine/peak.h"

#include <gtest/gtest.h>

#include "device/simd/isa.h"

namespace ingot::peak_test {

TEST(Peak, IsPlausibleOnEveryInstructionSet) {
  const Isa before = active_isa();
  for (const Isa isa : kEveryIsa) {
    if (!cpu_has(isa)) continue;
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

TEST(Peak, BandwidthIsPlausible) {
  const MachinePeak peak = machine_peak(1);
  EXPECT_GT(peak.read_gbs, 0.05);
  EXPECT_LT(peak.read_gbs, 2000.0);
}

}  // namespace ingot::peak_test
