// Messages between pairs of ranks: every ordered pair of the first ranks has a time for every size, and the
// fit finds the latency and bandwidth that times follow from, in the range where they do.
#include <gtest/gtest.h>

#include "comm/measure_messages.h"
#include "comm/threads.h"

namespace ingot::measure_messages_ranks_test {

TEST(MeasureMessages, EveryOrderedPairHasATimeForEverySize) {
  for (const int ranks : {1, 2, 5}) {
    std::vector<std::vector<PairMessages>> found(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](ThreadRank& self) {
      std::vector<int> everyone;
      for (int r = 0; r < ranks; ++r) everyone.push_back(r);
      const auto group = self.group("messages", everyone);
      found[static_cast<size_t>(self.rank())] = measure_messages(*group, {64, 1001, 70000}, 1e-4);
    });
    const std::vector<PairMessages>& pairs = found[0];
    ASSERT_EQ(pairs.size(), static_cast<size_t>(ranks * (ranks - 1)));
    size_t at = 0;
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to) {
        if (from == to) continue;
        const PairMessages& p = pairs[at];
        EXPECT_EQ(p.from, from);
        EXPECT_EQ(p.to, to);
        ASSERT_EQ(p.times.size(), 4u);
        const int64_t bytes[] = {0, 64, 1000, 70000};
        for (size_t i = 0; i < 4; ++i) {
          EXPECT_EQ(p.times[i].bytes, bytes[i]);
          EXPECT_GT(p.times[i].seconds, 0);
          for (const auto& others : found) EXPECT_EQ(others[at].times[i].seconds, p.times[i].seconds);
        }
        EXPECT_DOUBLE_EQ(p.bandwidth() * p.times[3].seconds, 70000);
        EXPECT_EQ(p.latency_seconds(), p.times[0].seconds);
        ++at;
      }
  }
}

TEST(MeasureMessages, OfManyRanksTheFirstHavePairs) {
  size_t pairs = 0;
  run_ranks(kPairedRanks + 1, [&](ThreadRank& self) {
    std::vector<int> everyone;
    for (int r = 0; r <= kPairedRanks; ++r) everyone.push_back(r);
    const auto group = self.group("messages", everyone);
    const auto found = measure_messages(*group, {64}, 1e-6);
    if (self.rank() == kPairedRanks) pairs = found.size();
  });
  EXPECT_EQ(pairs, static_cast<size_t>(kPairedRanks * (kPairedRanks - 1)));
}

std::vector<MessageTime> times_of(double latency, double bandwidth, int sizes) {
  std::vector<MessageTime> times{{0, latency}};
  for (int64_t bytes = 1024; static_cast<int>(times.size()) < sizes; bytes *= 4)
    times.push_back({bytes, latency + static_cast<double>(bytes) / bandwidth});
  return times;
}

TEST(MeasureMessages, TheFitFindsLatencyAndBandwidth) {
  std::vector<MessageTime> times = times_of(2e-6, 5e9, 9);
  const MessageFit exact = fit_messages(times);
  EXPECT_NEAR(exact.fit.latency_seconds, 2e-6, 1e-12);
  EXPECT_NEAR(1 / exact.fit.seconds_per_byte, 5e9, 1);
  EXPECT_LT(exact.fit.most, 1e-9);
  EXPECT_EQ(exact.smallest, 0);
  EXPECT_EQ(exact.largest, times.back().bytes);
  for (size_t i = 0; i < times.size(); ++i) times[i].seconds *= i % 2 == 0 ? 1.05 : 0.95;
  const MessageFit noisy = fit_messages(times);
  EXPECT_NEAR(noisy.fit.latency_seconds, 2e-6, 0.2e-6);
  EXPECT_NEAR(1 / noisy.fit.seconds_per_byte, 5e9, 0.5e9);
  EXPECT_GT(noisy.fit.residual, 0.02);
  EXPECT_LE(noisy.fit.residual, noisy.fit.most);
}

TEST(MeasureMessages, TheFitSaysForWhichSizesItHolds) {
  std::vector<MessageTime> times = times_of(2e-6, 5e9, 9);
  for (size_t i = 5; i < times.size(); ++i) times[i].seconds = i % 2 == 0 ? 1 : 100;
  const MessageFit fit = fit_messages(times);
  EXPECT_LE(fit.fit.residual, 0.1);
  EXPECT_LT(fit.largest, times.back().bytes);
  EXPECT_GE(fit.largest, times[4].bytes);
  for (size_t i = 1; i < times.size(); ++i) times[i].seconds = i % 2 == 0 ? 1 : 100;
  const MessageFit none = fit_messages(times);
  EXPECT_GT(none.fit.residual, 0.1) << "where nothing fits, all sizes count";
  EXPECT_EQ(none.smallest, 0);
  EXPECT_EQ(none.largest, times.back().bytes);
}

TEST(TimeFit, LatenciesCountAsOftenAsTheyArePaid) {
  std::vector<TimePoint> points;
  for (const double n : {1.0, 3.0})
    for (const double bytes : {1e3, 1e6}) points.push_back({n, bytes, n * 4e-6 + bytes / 2e9});
  const TimeFit fit = fit_times(points);
  EXPECT_NEAR(fit.latency_seconds, 4e-6, 1e-12);
  EXPECT_NEAR(fit.seconds_per_byte, 0.5e-9, 1e-15);
  EXPECT_NEAR(fit.seconds(3, 1e6), 12e-6 + 0.5e-3, 1e-9);
}

}  // namespace ingot::measure_messages_ranks_test
