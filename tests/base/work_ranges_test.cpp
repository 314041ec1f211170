// base/work_ranges: every item is taken once, a thread's own in order, another's from their end.
#include "base/work_ranges.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace ingot::work_ranges_test {

TEST(WorkRanges, AThreadTakesItsOwnInOrderThenTheLastOfAnothers) {
  WorkRanges ranges;
  ranges.deal(10, 17, 2);  // 10 to 12 and 13 to 16
  std::vector<int64_t> items, next;
  for (WorkRanges::Taken t = ranges.take(1); t.item != WorkRanges::kNone; t = ranges.take(1))
    items.push_back(t.item), next.push_back(t.next);
  EXPECT_EQ(items, (std::vector<int64_t>{13, 14, 15, 16, 12, 11, 10}));
  const int64_t none = WorkRanges::kNone;
  EXPECT_EQ(next, (std::vector<int64_t>{14, 15, 16, none, none, none, none}));
  EXPECT_EQ(ranges.take(0).item, none);
}

TEST(WorkRanges, FewerPiecesThanThreadsAndNone) {
  WorkRanges ranges;
  ranges.deal(0, 1, 3);
  EXPECT_EQ(ranges.take(2).item, 0);
  EXPECT_EQ(ranges.take(0).item, WorkRanges::kNone);
  ranges.deal(5, 5, 2);
  EXPECT_EQ(ranges.take(0).item, WorkRanges::kNone);
}

TEST(WorkRanges, RunsOfOnesOwn) {
  WorkRanges ranges;
  ranges.begin(4, 3);
  ranges.set_range(0, 4, 9), ranges.set_range(1, 9, 9), ranges.set_range(2, 9, 10);
  std::vector<int64_t> items;
  for (const int thread : {2, 1, 1, 0, 2, 0, 0}) items.push_back(ranges.take(thread).item);
  EXPECT_EQ(items, (std::vector<int64_t>{9, 8, 7, 4, 6, 5, WorkRanges::kNone}));  // 1 looks at 2, then at 0
}

TEST(WorkRanges, ThreadsTakeEveryPieceOnce) {
  constexpr int kThreads = 4, kItems = 1001;
  WorkRanges ranges;
  for (int round = 0; round < 50; ++round) {
    ranges.deal(0, kItems, kThreads);
    std::vector<std::atomic<int>> taken(kItems);
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (WorkRanges::Taken p = ranges.take(t); p.item != WorkRanges::kNone; p = ranges.take(t))
          ++taken[static_cast<size_t>(p.item)];
      });
    threads.clear();
    for (const std::atomic<int>& times : taken) ASSERT_EQ(times, 1);
  }
}

}  // namespace ingot::work_ranges_test
