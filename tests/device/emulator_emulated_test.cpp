// The emulator itself: threads meet, shared memory is NaN, orders follow the seed, and what a GPU would not
// survive is an error that says where.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "device/gpu/emulator.h"
#define INGOT_ISA emulated
#define INGOT_ISA_gpu 1
#define INGOT_ISA_emulated 1
#include "device/simd/reduce.h"
#include "device/simd/row_kernels.h"

namespace ingot::test::emulator_emulated_test {

using namespace emulated;

/// What the launch threw; "" for nothing.
template <class... Parameters, class... Arguments>
std::string error_of(void (*kernel)(Parameters...), int threads, const Arguments&... arguments) {
  try {
    launch("planted", kernel, {2, threads}, {}, arguments...);
  } catch (const InternalError& e) {
    return e.what();
  }
  return {};
}

/// Each thread writes its number, and reads its neighbour's after the barrier.
template <bool kBarrier>
void neighbours(float* to) {
  struct All {
    float x[64];
  };
  INGOT_SHARED(All, all);
  all.x[thread_index()] = static_cast<float>(thread_index());
  if (kBarrier) sync_threads();
  to[global_thread()] = all.x[(thread_index() + 1) % block_size()];
}

TEST(Emulator, SharedMemoryIsNaNUntilItIsWritten) {
  std::vector<float> to(128);
  launch("neighbours", neighbours<true>, {2, 64}, {}, to.data());
  for (size_t i = 0; i < to.size(); ++i) EXPECT_EQ(to[i], static_cast<float>((i + 1) % 64));
  launch("neighbours", neighbours<false>, {2, 64}, {}, to.data());
  const auto nans = std::count_if(to.begin(), to.end(), [](float x) { return std::isnan(x); });
  EXPECT_GT(nans, 20);
  EXPECT_LT(nans, 108);
}

void numbers(int* next, int* order) {
  order[(*next)++] = static_cast<int>(global_thread());
}

TEST(Emulator, TheSeedDecidesTheOrder) {
  std::set<std::vector<int>> orders;
  for (const uint64_t seed : {1, 2, 3}) {
    set_emulation({true, seed});
    int next = 0;
    std::vector<int> order(64);
    launch("numbers", numbers, {4, 16}, {}, &next, order.data());
    EXPECT_EQ(next, 64);
    EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), 64U);
    orders.insert(order);
  }
  set_emulation({});
  EXPECT_EQ(orders.size(), 3U);
}

TEST(Emulator, TheSettingOfTheEnvironmentIsRead) {
  const Emulation plain = emulation_of("17"), alone = emulation_of("18446744073709551615,alone");
  EXPECT_TRUE(plain.on && !plain.alone);
  EXPECT_EQ(plain.seed, 17U);
  EXPECT_TRUE(alone.on && alone.alone);
  EXPECT_EQ(alone.seed, ~uint64_t{0});
  EXPECT_FALSE(plain.mma || alone.mma);
  const Emulation mma = emulation_of("3,mma"), both = emulation_of("3,alone,mma");
  EXPECT_TRUE(mma.mma && !mma.alone && both.mma && both.alone && !both.wgmma);
  const Emulation hopper = emulation_of("3,wgmma"), all = emulation_of("3,alone,wgmma");
  EXPECT_TRUE(hopper.mma && hopper.wgmma && !hopper.alone && all.wgmma && all.alone);
  for (const char* wrong :
       {"",         "alone",   "1,mma,alone", "1,mma,", "1,mma,wgmma", "1,wgmma,mma",
        "1,",       ",alone",  "1,",          "1,alon", "1,alone,",    "1,alone ",
        "1, alone", "1,ALONE", "1alone",      " 1",     "1 ",          "-1",
        "+1",       "1.5",     "0x1",         "1,2",    "async,1",     "18446744073709551616"})
    EXPECT_THROW(emulation_of(wrong), Error) << wrong;
}

void sums(const float* x, float* to, int64_t width) {
  const float sum = row_sum(x + row_of_thread() * width, width);
  if (writes_scalars()) to[row_of_thread()] = sum;
}

TEST(Emulator, GroupsOfFourThreadsAddInTheTree) {
  for (const int64_t width : {0, 1, 15, 16, 17, 100}) {
    std::vector<float> x(static_cast<size_t>(3 * width)), to(3, -1.0F);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 1.0F / static_cast<float>(i + 3);
    launch("sums", sums, {1, 12}, {}, x.data(), to.data(), width);
    for (int64_t t = 0; t < 3; ++t) {
      float lane[16] = {};
      for (int64_t i = 0; i < width; ++i) lane[i % 16] += x[static_cast<size_t>(t * width + i)];
      for (int step = 8; step >= 1; step /= 2)
        for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
      EXPECT_EQ(to[static_cast<size_t>(t)], lane[0]) << width;
    }
  }
}

void leaves_early() {
  if (thread_index() == 5) return;
  sync_threads();
}
void meets_in_two_places() {
  if (thread_index() % 2 == 0)
    sync_threads();
  else
    sync_threads();
}
void shuffles_alone() {
  if (thread_index() != 3) shuffle_xor<4>(1, 1);
}
void loads_between(const float* x) {
  float four[4];
  load4(x + 1, four);
}

TEST(Emulator, SaysWhereThreadsWaitForever) {
  std::string error = error_of(leaves_early, 64);
  EXPECT_NE(error.find("deadlock: 1 threads have ended, the first is 5; 63 threads wait for 64 at"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("emulator_emulated_test.cpp:"), std::string::npos) << error;
  error = error_of(shuffles_alone, 8);
  EXPECT_NE(error.find("threads have ended, the first is 3; 3 threads wait for 4 at"), std::string::npos)
      << error;
}

TEST(Emulator, RefusesABarrierInTwoPlaces) {
  const std::string error = error_of(meets_in_two_places, 32);
  EXPECT_NE(error.find("of its group at"), std::string::npos) << error;
}

TEST(Emulator, RefusesAccessesThatAreNotAligned) {
  alignas(16) const float x[8] = {};
  const float* const at = x;
  EXPECT_NE(error_of(loads_between, 4, at).find("16 bytes"), std::string::npos);
  launch("sums", neighbours<true>, {0, 64}, {}, static_cast<float*>(nullptr));  // no blocks: nothing runs
}

TEST(Emulator, CountsLaunches) {
  const int64_t before = emulated_launches()["neighbours"];
  float to[4];
  launch("neighbours", neighbours<true>, {1, 4}, {}, &to[0]);
  EXPECT_EQ(emulated_launches()["neighbours"], before + 1);
}

}  // namespace ingot::test::emulator_emulated_test
