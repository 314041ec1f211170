// The filter by pass rate, and its state.
#include "post/rl/problem_pool.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot::problem_pool_test {
namespace {

TEST(ProblemPool, KeepsWhatIsNeitherTooEasyNorTooHard) {
  ProblemPool pool(2);
  EXPECT_TRUE(pool.empty());
  pool.offer(0, {1, 5}, {0.75}, 0.25, 0.75);
  pool.offer(0, {2, 5}, {0.8}, 0.25, 0.75);
  pool.offer(0, {3, 6}, {0.0}, 0.25, 0.75);
  pool.offer(0, {4, 6}, {0.25, 0.5}, 0.25, 0.75);
  pool.offer(0, {5, 6}, {0.5, 1.0}, 0.25, 0.75);  // too easy in one of two modes
  EXPECT_FALSE(pool.empty());
  EXPECT_EQ(pool.kept(0), 2);
  EXPECT_EQ(pool.kept(1), 0);
  EXPECT_EQ(pool.problem(0, 0), (ProblemPool::Entry{1, 5}));
  EXPECT_EQ(pool.problem(0, 1), (ProblemPool::Entry{4, 6}));
  EXPECT_EQ(pool.problem(0, 2), (ProblemPool::Entry{1, 5}));  // again from the first
}

TEST(ProblemPool, ItsStateContinues) {
  ProblemPool pool(1), back(1), other(2);
  pool.offer(0, {(uint64_t{1} << 62) + 1, -3}, {0.5}, 0, 1);
  back.restore(pool.json(), "here");
  EXPECT_EQ(back.problem(0, 0), pool.problem(0, 0));
  EXPECT_THROW(other.restore(pool.json(), "here"), Error);
  EXPECT_THROW(back.restore("[[[1]]]", "here"), Error);
  EXPECT_THROW(back.restore("{", "here"), Error);
}

}  // namespace
}  // namespace ingot::problem_pool_test
