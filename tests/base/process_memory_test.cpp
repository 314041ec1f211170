// What a process has in memory, and the most of it since a moment of choice.
#include "base/process_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace ingot::test::process_memory_test {

constexpr int64_t kBytes = 256 << 20;

TEST(ProcessMemory, ThePeakIsTheMostSinceItWasRestarted) {
  { const std::vector<char> touched(kBytes, 1); }
  const int64_t before = peak_resident_bytes();
  EXPECT_GE(before, kBytes);
  EXPECT_GT(resident_bytes(), 0);
  if (!restart_peak_resident_bytes()) GTEST_SKIP() << "the system does not allow it";
  EXPECT_LT(peak_resident_bytes(), before - kBytes / 2);
  { const std::vector<char> touched(kBytes, 1); }
  EXPECT_GE(peak_resident_bytes(), kBytes);
}

}  // namespace ingot::test::process_memory_test
