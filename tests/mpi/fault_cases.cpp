// One rank of three fails in each collective (fault_program.cpp): all processes end in time, the survivors
// have written their flight records, and the messages name the rank, the operation and the step.
#include <fmt/core.h>

#include <algorithm>
#include <regex>

#include "mpi/fault_run.h"

namespace ingot {
namespace {

using test::kAbort;
using test::kReport;
using test::Outcome;
const char* const kCollectives[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                    "all_to_all", "barrier",        "send_recv"};

Outcome run(const std::string& fault, const std::string& where, const test::TempDir& folder,
            double abort = kAbort) {
  return test::run_ranks_of(
      fmt::format("{} {} {} {} {} {}", INGOT_FAULT_PROGRAM, fault, where, folder.path(), kReport, abort), 3,
      folder.path());
}

std::string name(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}

class Fault : public testing::TestWithParam<const char*> {
 protected:
  Outcome run_fault(const std::string& fault) { return run(fault, GetParam(), folder_); }
  /// Rank 0 waits for the victim in this collective in every case.
  void expect_ended(const Outcome& o) {
    EXPECT_NE(o.code, 0) << o.output;
    EXPECT_LT(o.seconds, kAbort + 5) << o.output;
    EXPECT_EQ(o.output.find("all steps done"), std::string::npos);
  }
  void expect_named(const Outcome& o, const std::string& what) {
    EXPECT_NE(o.output.find(what), std::string::npos) << what << " in: " << o.output;
  }
  /// Whether a survivor's record has the operation that broke as one that it waited for.
  bool flight_has(const Outcome& o, int rank) {
    const nlohmann::json f = o.flight(rank);
    if (!f.is_object() || f["rank"] != rank || f["ranks"] != 3) return false;
    for (const auto& op : f["groups"][0]["operations"])
      if ((op["state"] == "waiting" || op["state"] == "failed") && op["step"] == 3 &&
          op["operation"].get<std::string>().find(GetParam()) == 0)
        return true;
    return false;
  }
  test::TempDir folder_;
};

TEST_P(Fault, AKilledRankEndsAll) {
  const Outcome o = run_fault("kill");
  expect_ended(o);
  // mpirun may kill a rank before it can say that it was told to: then its report of the late rank is there.
  const std::regex message(std::string("rank 0 in ") + GetParam() +
                           ".* at step 3(: waits for .* s)?; missing: rank 1");
  EXPECT_TRUE(std::regex_search(o.output, message)) << o.output;
  expect_named(o, "received SIGTERM");
  EXPECT_TRUE(flight_has(o, 0)) << o.output << o.flight(0).dump(1);
  EXPECT_TRUE(o.flight(2).is_object()) << o.output;
}

/// The launcher resumes a stopped process to end it, so it may still reach the operation: only the rank that
/// gave up first is sure to have it in its record.
TEST_P(Fault, AStoppedRankEndsAllAfterTheDeadline) {
  const Outcome o = run_fault("stop");
  expect_ended(o);
  EXPECT_GT(o.seconds, kAbort);
  const std::regex message(std::string("error on rank [02] at step 3: rank [02] in ") + GetParam() +
                           ".* at step 3: (not complete after 2 s|rank [02] has failed); missing: rank 1 "
                           "\\(still running; last seen in: ");
  EXPECT_TRUE(std::regex_search(o.output, message)) << o.output;
  EXPECT_TRUE(flight_has(o, 0) || flight_has(o, 2)) << o.output << o.flight(0).dump(1) << o.flight(2).dump(1);
  EXPECT_TRUE(o.flight(0).is_object() && o.flight(2).is_object()) << o.output;
}

TEST_P(Fault, ALateRankIsReportedOnceAndTheRunGoesOn) {
  const Outcome o = run("delay", GetParam(), folder_, 30);  // a busy machine may add to the delay
  EXPECT_EQ(o.code, 0) << o.output;
  expect_named(o, "all steps done");
  const std::regex report(std::string("rank 0 in ") + GetParam() +
                          ".* at step 3: waits for .* s; missing: rank 1 ");
  const std::sregex_iterator first(o.output.begin(), o.output.end(), report), none;
  EXPECT_EQ(std::distance(first, none), 1) << o.output;
}

TEST_P(Fault, AnExceptionInOneRankEndsAll) {
  const Outcome o = run_fault("throw");
  expect_ended(o);
  expect_named(o, "error on rank 1 at step 3: the disk is full\nhint: free some space");
  expect_named(o, "at step 3: rank 1 has failed");
  EXPECT_LT(o.output.find("the disk is full"), o.output.find("has failed"));
  EXPECT_TRUE(o.flight(0).is_object() && o.flight(2).is_object()) << o.output;
  EXPECT_EQ(o.flight(1)["reason"].get<std::string>().find("error on rank 1 at step 3"), 0u);
}

INSTANTIATE_TEST_SUITE_P(Mpi, Fault, testing::ValuesIn(kCollectives), name);

TEST(MpiFault, AMismatchNamesBothRanks) {
  const test::TempDir folder;
  const Outcome o = run("mismatch", "all_gather", folder);
  EXPECT_NE(o.code, 0);
  EXPECT_NE(o.output.find("does all_reduce f32[7] -> f32[7]"), std::string::npos) << o.output;
  EXPECT_NE(o.output.find("does all_gather f32[30000] -> f32[90000]"), std::string::npos) << o.output;
  EXPECT_NE(o.output.find("at step 3"), std::string::npos) << o.output;
}

TEST(MpiFault, ARankThatReturnedIsNotWaitedFor) {
  const test::TempDir folder;
  constexpr double kLongAbort = 10;
  const Outcome o = run("return", "all_reduce", folder, kLongAbort);
  EXPECT_NE(o.code, 0);
  EXPECT_LT(o.seconds, kLongAbort) << o.output;
  EXPECT_NE(o.output.find("at step 3: it will never complete; missing: rank 1 (it has returned"),
            std::string::npos)
      << o.output;
}

TEST(MpiFault, ARankThatStopsBeforeItsGroupsIsNotWaitedForWithoutEnd) {
  const test::TempDir folder;
  const Outcome o = run("stop", "group", folder);
  EXPECT_NE(o.code, 0);
  EXPECT_LT(o.seconds, kAbort + 5) << o.output;
  EXPECT_NE(o.output.find(": making group 'all' of 3 ranks did not return within the abort limit"),
            std::string::npos)
      << o.output;
  EXPECT_TRUE(o.flight(0).is_object() && o.flight(2).is_object()) << o.output;
}

TEST(MpiFault, ADroppedOperationEndsAll) {
  const test::TempDir folder;
  const Outcome o = run("drop", "all_gather", folder);
  EXPECT_NE(o.code, 0);
  EXPECT_NE(o.output.find("rank 1 withdrew from send_recv f32[30000]"), std::string::npos) << o.output;
}

}  // namespace
}  // namespace ingot
