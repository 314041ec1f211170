// The contract of communicators (support/world_checks.h) among processes.
#include "comm/world.h"

#include <sched.h>

#include "base/parallel.h"
#include "comm/launch.h"
#include "mpi/this_world.h"
#include "support/world_checks.h"

namespace ingot::world_test {

using namespace test::world_checks;
using test::this_world;

TEST(MpiWorld, StartsAsManyRanksAsAreAsked) {
  const char* expected = std::getenv("INGOT_EXPECT_RANKS");
  ASSERT_NE(expected, nullptr);
  EXPECT_EQ(this_world().ranks(), std::atoi(expected));
}
TEST(MpiWorld, CollectivesOfEveryType) {
  check_collectives(this_world());
}
TEST(MpiWorld, SumsAddInRankOrder) {
  check_order_of_sums(this_world());
}
TEST(MpiWorld, AllToAllMovesRowsAndClearsPadding) {
  check_all_to_all(this_world());
}
TEST(MpiWorld, MessagesKeepTheirOrder) {
  check_messages(this_world());
}
TEST(MpiWorld, DataMoveAlongWhileRanksCompute) {
  check_progress(this_world());
}
TEST(MpiWorld, GroupsDoNotMeet) {
  check_groups(this_world());
}
TEST(MpiWorld, TheSelfTestNamesASlowRank) {
  check_slow_rank(this_world());
}

TEST(MpiWorld, RanksAreBoundToTheirCores) {
  if (std::getenv("INGOT_CORES") == nullptr) return;
  cpu_set_t mine, expected;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  CPU_ZERO(&expected);
  for (const int core : cores_of(*find_launch())) CPU_SET(static_cast<size_t>(core), &expected);
  EXPECT_TRUE(CPU_EQUAL(&mine, &expected));
}

TEST(MpiWorld, RanksOfANodeDivideItsCores) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  EXPECT_EQ(num_threads(),
            std::max(1, CPU_COUNT(&mine) / this_world().ranks()));  // the tests run without binding
}

}  // namespace ingot::world_test
