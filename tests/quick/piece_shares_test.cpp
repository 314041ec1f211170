// base/piece_shares: every piece is taken once, a thread's own in order, another's from their end.
#include "base/piece_shares.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace ingot::piece_shares_test {

TEST(PieceShares, AThreadTakesItsOwnInOrderThenTheLastOfAnothers) {
  PieceShares shares;
  shares.deal(10, 17, 2);  // 10 to 12 and 13 to 16
  std::vector<int64_t> pieces, next;
  for (PieceShares::Taken t = shares.take(1); t.piece != PieceShares::kNone; t = shares.take(1))
    pieces.push_back(t.piece), next.push_back(t.next);
  EXPECT_EQ(pieces, (std::vector<int64_t>{13, 14, 15, 16, 12, 11, 10}));
  const int64_t none = PieceShares::kNone;
  EXPECT_EQ(next, (std::vector<int64_t>{14, 15, 16, none, none, none, none}));
  EXPECT_EQ(shares.take(0).piece, none);
}

TEST(PieceShares, FewerPiecesThanThreadsAndNone) {
  PieceShares shares;
  shares.deal(0, 1, 3);
  EXPECT_EQ(shares.take(2).piece, 0);
  EXPECT_EQ(shares.take(0).piece, PieceShares::kNone);
  shares.deal(5, 5, 2);
  EXPECT_EQ(shares.take(0).piece, PieceShares::kNone);
}

TEST(PieceShares, RunsOfOnesOwn) {
  PieceShares shares;
  shares.begin(4, 3);
  shares.set_run(0, 4, 9), shares.set_run(1, 9, 9), shares.set_run(2, 9, 10);
  std::vector<int64_t> pieces;
  for (const int thread : {2, 1, 1, 0, 2, 0, 0}) pieces.push_back(shares.take(thread).piece);
  EXPECT_EQ(pieces, (std::vector<int64_t>{9, 8, 7, 4, 6, 5, PieceShares::kNone}));  // 1 looks at 2, then at 0
}

TEST(PieceShares, ThreadsTakeEveryPieceOnce) {
  constexpr int kThreads = 4, kPieces = 1001;
  PieceShares shares;
  for (int round = 0; round < 50; ++round) {
    shares.deal(0, kPieces, kThreads);
    std::vector<std::atomic<int>> taken(kPieces);
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (PieceShares::Taken p = shares.take(t); p.piece != PieceShares::kNone; p = shares.take(t))
          ++taken[static_cast<size_t>(p.piece)];
      });
    threads.clear();
    for (const std::atomic<int>& times : taken) ASSERT_EQ(times, 1);
  }
}

}  // namespace ingot::piece_shares_test
