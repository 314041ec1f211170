// Which rows a call computes, and who gives pages back, without a model.
#include "infer/schedule.h"

#include <gtest/gtest.h>

namespace ingot::test::schedule_test {

using Rows = std::vector<std::pair<size_t, int64_t>>;

Rows rows_of(const CallPlan& plan) {
  Rows all;
  for (const CallPlan::Rows& r : plan.rows) all.emplace_back(r.item, r.count);
  return all;
}

ScheduleItem decoding(int64_t cached, int64_t need = 0) {
  return {cached, 1, need, cached / 64 + 1, true};
}
ScheduleItem waiting(int64_t tokens) {
  return {0, tokens, (tokens + 63) / 64, 0, false};
}
ScheduleItem half_done(int64_t cached, int64_t pending) {
  return {cached, pending, (cached + pending + 63) / 64 - cached / 64, cached / 64, true};
}

TEST(Schedule, DecodesComeFirstThenPromptsByAge) {
  const std::vector<ScheduleItem> items = {waiting(100), decoding(7), waiting(50), decoding(9), waiting(9)};
  EXPECT_EQ(rows_of(plan_call(items, 120, 100)), (Rows{{1, 1}, {3, 1}, {0, 100}, {2, 18}}));
  EXPECT_EQ(rows_of(plan_call(items, 1, 100)), (Rows{{1, 1}}));
  EXPECT_EQ(rows_of(plan_call(items, 1000, 100)).size(), 5u);
}

TEST(Schedule, ASampleThatNeedsNothingTakesNoPart) {
  EXPECT_TRUE(plan_call(std::vector<ScheduleItem>{{5, 0, 0, 1, true}}, 10, 10).rows.empty());
  EXPECT_TRUE(plan_call({}, 10, 10).rows.empty());
}

TEST(Schedule, APromptBeginsWhenAllOfItFits) {
  const std::vector<ScheduleItem> items = {decoding(10), waiting(640), waiting(10)};
  const CallPlan plan = plan_call(items, 64, 9);
  EXPECT_EQ(rows_of(plan), (Rows{{0, 1}})) << "nor does one begin before it that came later";
  EXPECT_EQ(plan.missing, 1);
  EXPECT_FALSE(plan.victim) << "one that waits takes no pages away";
}

TEST(Schedule, TheYoungestHolderGivesPagesToAnOlderOne) {
  const std::vector<ScheduleItem> items = {decoding(64, 1), decoding(30), half_done(64, 100), waiting(5)};
  const CallPlan plan = plan_call(items, 64, 0);
  EXPECT_EQ(plan.missing, 1);
  EXPECT_EQ(plan.victim, 2u);
  EXPECT_EQ(rows_of(plan), (Rows{{1, 1}})) << "who needs no page continues";
  const std::vector<ScheduleItem> last = {decoding(30), decoding(64, 1)};
  EXPECT_FALSE(plan_call(last, 64, 0).victim) << "the youngest itself waits";
}

TEST(Schedule, PromisedPagesAreNotGivenTwice) {
  const std::vector<ScheduleItem> items = {half_done(64, 128), half_done(64, 64)};
  const CallPlan plan = plan_call(items, 32, 2);
  EXPECT_EQ(rows_of(plan), (Rows{{0, 32}}));
}

}  // namespace ingot::test::schedule_test
