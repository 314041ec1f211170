// Grid and communicator: literal groups, every operation on every type, and an error message for every
// misuse.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file_system.h"
#include "comm/grid.h"
#include "comm/threads.h"
#include "support/expect_parts.h"
#include "support/support.h"
#include "support/world_checks.h"

namespace ingot::communicator_ranks_test {

using test::everyone, test::expect_parts, test::Ranks, test::tensor;
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
  for (const GridAxis axis :
       {GridAxis::pp, GridAxis::dp, GridAxis::cp, GridAxis::tp, GridAxis::edp, GridAxis::ep, GridAxis::etp})
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

TEST(Communicator, SumsAddInRankOrder) {
  run_ranks(3, [](ThreadRank& self) { check_order_of_sums(self); });
}

TEST(Communicator, AllToAllMovesRowsAndClearsPadding) {
  run_ranks(3, [](ThreadRank& self) { check_all_to_all(self); });
}

TEST(Communicator, MessagesKeepTheirOrder) {
  run_ranks(2, [](ThreadRank& self) { check_messages(self); });
}

TEST(Communicator, DataMoveAlongWhileRanksCompute) {
  run_ranks(2, [](ThreadRank& self) { check_progress(self); });
}

TEST(Communicator, TheSelfTestNamesASlowRank) {
  run_ranks(4, [](ThreadRank& self) { check_slow_rank(self); });
}
TEST(Communicator, GroupsDoNotMeet) {
  run_ranks(3, [](ThreadRank& self) { check_groups(self); });
}

std::string message_of(int ranks, const std::function<void(ThreadRank&)>& fn, double deadline = 60) {
  try {
    run_ranks(ranks, fn, deadline);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
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
  expect_parts(message, {"all_reduce f64[4]", "#1", "'tensor'", "0.2 s", "missing: rank 1",
                         "last started: barrier #0"});
}

TEST(Communicator, ALateRankIsReportedAndTheRunGoesOn) {
  const test::TempDir folder;
  run_ranks(2, [&](ThreadRank& self) {
    self.set_limits({.report_seconds = 0.1});
    self.set_flight_folder(folder.path());
    self.set_step(7);
    const auto c = self.group("data", everyone(2));
    c->barrier();
    if (self.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    c->barrier();
  });
  const auto f = nlohmann::json::parse(real_file_system().read(folder / "flight-0.json"));
  EXPECT_EQ(f["step"], 7);
  expect_parts(f["reason"],
               {"rank 0 in barrier #1 of group 'data' at step 7: waits for 0.1 s; missing: rank 1"});
  const auto& operations = f["groups"][0]["operations"];
  ASSERT_EQ(operations.size(), 2u);
  EXPECT_EQ(operations[0]["state"], "complete");
  EXPECT_EQ(operations[1]["state"], "waiting");
  EXPECT_TRUE(operations[1]["ended"].is_null());
  EXPECT_FALSE(real_file_system().exists(folder / "flight-1.json"));
}

TEST(Communicator, EveryRankThatFailsLeavesAFlightRecord) {
  const test::TempDir folder;
  const std::string message = message_of(3, [&](ThreadRank& self) {
    self.set_flight_folder(folder.path());
    self.set_step(2);
    const auto c = self.group("all", everyone(3));
    if (self.rank() == 1) fail("the disk is full");
    c->barrier();
  });
  EXPECT_EQ(message, "the disk is full");
  for (const int rank : {0, 1, 2}) {
    const auto f =
        nlohmann::json::parse(real_file_system().read(fmt::format("{}/flight-{}.json", folder.path(), rank)));
    EXPECT_EQ(f["rank"], rank);
    if (rank == 1)
      EXPECT_EQ(f["reason"], "the disk is full");
    else
      expect_parts(f["reason"], {"barrier #0 of group 'all' at step 2: ", "rank 1 stopped with an error"});
  }
}

TEST(FlightRecorder, KeepsTheLastOperations) {
  FlightRecorder recorder;
  const size_t group = recorder.add_group("data", {0, 2});
  const FlightRecorder::Ticket first = recorder.begin(group, {.number = 0});
  for (int64_t i = 1; i < 100; ++i)
    recorder.mark(recorder.begin(group, {.number = i}), FlightState::complete);
  recorder.mark(first, FlightState::failed);  // it has been forgotten
  const auto f = nlohmann::json::parse(recorder.json(0, 3, -1, "test"));
  const auto& operations = f["groups"][0]["operations"];
  EXPECT_EQ(f["groups"][0]["members"], (Ranks{0, 2}));
  ASSERT_EQ(operations.size(), FlightRecorder::kKept);
  EXPECT_EQ(operations.front()["number"], 100 - static_cast<int64_t>(FlightRecorder::kKept));
  EXPECT_EQ(operations.back()["operation"], "barrier #99 of group 'data'");
  for (const auto& o : operations) EXPECT_EQ(o["state"], "complete");
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
      (self.rank() == 1 && gather ? c->all_gather(tensor(x), tensor(y)) : c->all_reduce(tensor(x), tensor(x)))
          .wait();
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

}  // namespace ingot::communicator_ranks_test
