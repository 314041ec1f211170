// Grid and communicator: literal groups, every operation on every type, and every way to go wrong ends in a message.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/grid.h"
#include "comm/threads.h"
#include "support/world_checks.h"

namespace ingot {
namespace {

using test::Ranks, test::everyone, test::tensor;
using namespace test::world_checks;

TEST(Grid, TwoViewsOverTheSameRanks) {
  const Grid g({.pp = 2, .dp = 2, .cp = 2, .tp = 2, .ep = 8, .etp = 1});
  EXPECT_EQ(g.ranks(), 16);
  EXPECT_EQ(g.group({GridAxis::tp}, 3), (Ranks{2, 3}));
  EXPECT_EQ(g.group({GridAxis::cp}, 0), (Ranks{0, 2}));
  EXPECT_EQ(g.group({GridAxis::cp}, 6), (Ranks{4, 6}));
  EXPECT_EQ(g.group({GridAxis::dp}, 5), (Ranks{1, 5}));
  EXPECT_EQ(g.group({GridAxis::dp, GridAxis::cp}, 0), (Ranks{0, 2, 4, 6}));
  EXPECT_EQ(g.group({GridAxis::pp}, 9), (Ranks{1, 9}));
  EXPECT_EQ(g.group({GridAxis::ep}, 11), (Ranks{8, 9, 10, 11, 12, 13, 14, 15}));
  const Grid h({.pp = 2, .dp = 2, .cp = 2, .tp = 2, .ep = 4, .etp = 1});
  EXPECT_EQ(h.group({GridAxis::ep}, 5), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(h.group({GridAxis::edp}, 5), (Ranks{1, 5}));
  EXPECT_EQ(h.index(GridAxis::edp, 5), 1);
  const Grid report({.pp = 4, .dp = 8, .cp = 2, .tp = 4, .ep = 64, .etp = 1});
  EXPECT_EQ(report.ranks(), 256);
  EXPECT_EQ(report.group({GridAxis::ep}, 7), everyone(64));
  EXPECT_EQ(report.size(GridAxis::edp), 1);
}

TEST(Grid, EveryRankIsInOneGroupOfEachAxis) {
  const Grid g({.pp = 2, .dp = 3, .cp = 2, .tp = 2, .ep = 3, .etp = 2});
  for (const GridAxis axis : {GridAxis::pp, GridAxis::dp, GridAxis::cp, GridAxis::tp, GridAxis::edp, GridAxis::ep,
                              GridAxis::etp})
    for (int r = 0; r < g.ranks(); ++r) {
      const Ranks group = g.group({axis}, r);
      ASSERT_EQ(static_cast<int>(group.size()), g.size(axis)) << name_of(axis);
      EXPECT_EQ(group[static_cast<size_t>(g.index(axis, r))], r) << name_of(axis);
      for (const int peer : group) EXPECT_EQ(g.group({axis}, peer), group) << name_of(axis);
    }
}

TEST(Grid, RefusesExpertsThatDoNotTile) {
  EXPECT_THROW(Grid({.dp = 2, .ep = 3}), Error);
  EXPECT_THROW(Grid({.dp = 0}), Error);
}

TEST(Communicator, CollectivesOfEveryType) {
  for (const int n : {1, 2, 3}) run_ranks(n, [](ThreadRank& self) { check_collectives(self); });
}

TEST(Communicator, SumsAddInRankOrder) { run_ranks(3, [](ThreadRank& self) { check_order_of_sums(self); }); }

TEST(Communicator, AllToAllMovesRowsAndClearsPadding) {
  run_ranks(3, [](ThreadRank& self) { check_all_to_all(self); });
}

TEST(Communicator, MessagesKeepTheirOrder) { run_ranks(2, [](ThreadRank& self) { check_messages(self); }); }

TEST(Communicator, GroupsDoNotMeet) { run_ranks(3, [](ThreadRank& self) { check_groups(self); }); }

std::string message_of(int ranks, const std::function<void(ThreadRank&)>& fn, double deadline = 60) {
  try {
    run_ranks(ranks, fn, deadline);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

void expect_parts(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

TEST(Communicator, ADeadlineNamesWhoIsMissing) {
  const std::string message = message_of(
      3,
      [](ThreadRank& self) {
        const auto c = self.group("tensor", everyone(3));
        c->barrier();
        if (self.rank() == 1) return std::this_thread::sleep_for(std::chrono::milliseconds(600));
        std::vector<double> x(4);
        c->all_reduce(tensor(x), tensor(x)).wait();
      },
      0.2);
  expect_parts(message, {"all_reduce f64[4]", "#1", "'tensor'", "0.2 s", "missing: rank 1", "last started: barrier #0"});
}

TEST(Communicator, ARankThatReturnedIsNotWaitedFor) {
  const std::string message = message_of(2, [](ThreadRank& self) {
    const auto c = self.group("all", everyone(2));
    if (self.rank() == 0) c->barrier();
  });
  expect_parts(message, {"rank 0", "missing: rank 1 (it has returned"});
}

TEST(Communicator, AMismatchNamesBoth) {
  const auto differ = [](int64_t rows, bool gather) {
    return message_of(2, [&](ThreadRank& self) {
      const auto c = self.group("all", everyone(2));
      std::vector<float> x(static_cast<size_t>(self.rank() == 1 ? rows : 4)), y(2 * x.size());
      (self.rank() == 1 && gather ? c->all_gather(tensor(x), tensor(y)) : c->all_reduce(tensor(x), tensor(x))).wait();
    });
  };
  expect_parts(differ(4, true), {"rank 0 does all_reduce f32[4]", "rank 1 does all_gather f32[4] -> f32[8]"});
  expect_parts(differ(5, false), {"rank 0 does all_reduce f32[4]", "rank 1 does all_reduce f32[5]"});
}

TEST(Communicator, AnExceptionInOneRankEndsAll) {
  for (const int bad : {0, 2}) {
    const std::string message = message_of(3, [&](ThreadRank& self) {
      const auto c = self.group("all", everyone(3));
      c->barrier();
      if (self.rank() == bad) fail("the disk of rank {} is full", bad);
      c->barrier();
    });
    EXPECT_EQ(message, fmt::format("the disk of rank {} is full", bad));
  }
}

TEST(Communicator, ADroppedOperationFailsItsPeers) {
  const std::string message = message_of(2, [](ThreadRank& self) {
    const auto c = self.group("all", everyone(2));
    std::vector<float> x(4);
    if (self.rank() == 0) {
      { const Pending dropped = c->all_reduce(tensor(x), tensor(x)); }
      std::vector<float> flag(1);
      c->send(tensor(flag), 1).wait();
      return;
    }
    std::vector<float> flag(1);
    c->recv(tensor(flag), 0).wait();
    c->all_reduce(tensor(x), tensor(x)).wait();
  });
  expect_parts(message, {"rank 1 in all_reduce", "rank 0 withdrew"});
}

}  // namespace
}  // namespace ingot
