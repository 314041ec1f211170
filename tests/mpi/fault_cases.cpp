// One rank of three goes wrong in each collective (fault_program.cpp): everything ends in time, nothing stays behind, the
// survivors have written their flight records, and what is printed names the rank, the operation and the step.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "support/support.h"

namespace ingot {
namespace {

constexpr double kReport = 0.5, kAbort = 2;
const char* const kCollectives[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "barrier", "send_recv"};

struct Outcome {
  std::string output, folder;
  int code = 0;
  double seconds = 0;
  nlohmann::json flight(int rank) const {
    std::ifstream file(folder + "/flight-" + std::to_string(rank) + ".json");
    return file ? nlohmann::json::parse(file) : nlohmann::json();
  }
  int times(const std::string& part) const {
    int n = 0;
    for (size_t at = output.find(part); at != std::string::npos; at = output.find(part, at + 1)) ++n;
    return n;
  }
};

/// Whether a process is there, as more than an entry that nobody has collected.
bool lives(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  return std::getline(file, text) && text.substr(text.rfind(')') + 2, 1) != "Z";
}

Outcome run(const std::string& fault, const std::string& where, const test::TempDir& folder) {
  Outcome o;
  o.folder = folder.path();
  const std::string command = std::string(INGOT_MPI_ENVIRONMENT " " INGOT_MPIEXEC) + " -n 3 " + INGOT_FAULT_PROGRAM + " " + fault + " " + where + " " + o.folder +
                              " " + std::to_string(kReport) + " " + std::to_string(kAbort) + " 2>&1 </dev/null";
  const double begin = monotonic_seconds();
  FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) o.output.append(buffer, n);
  o.code = WEXITSTATUS(::pclose(pipe));
  o.seconds = monotonic_seconds() - begin;
  for (int rank = 0; rank < 3; ++rank) {
    int pid = 0;
    std::ifstream(o.folder + "/pid-" + std::to_string(rank)) >> pid;
    EXPECT_GT(pid, 0) << o.output;
    for (int tries = 0; lives(pid) && tries < 50; ++tries) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(lives(pid)) << "rank " << rank << " is still there: " << fault << " in " << where;
  }
  return o;
}

std::string name(const testing::TestParamInfo<const char*>& info) { return info.param; }

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
  /// Some waiting operation of the survivor is the one that broke.
  void expect_flight(const Outcome& o, int rank, const std::string& operation) {
    const nlohmann::json f = o.flight(rank);
    ASSERT_TRUE(f.is_object()) << "rank " << rank << " left no flight record: " << o.output;
    EXPECT_EQ(f["rank"], rank);
    EXPECT_EQ(f["ranks"], 3);
    bool found = false;
    for (const auto& op : f["groups"][0]["operations"])
      found |= (op["state"] == "waiting" || op["state"] == "failed") && op["step"] == 3 &&
               op["operation"].get<std::string>().find(operation) == 0;
    EXPECT_TRUE(found) << operation << " in " << f.dump(1);
  }
  test::TempDir folder_;
};

TEST_P(Fault, AKilledRankEndsAll) {
  const Outcome o = run_fault("kill");
  expect_ended(o);
  expect_named(o, std::string("rank 0 in ") + GetParam());
  expect_named(o, "at step 3; missing: rank 1");
  expect_named(o, "told to end (SIGTERM)");
  expect_flight(o, 0, GetParam());
  EXPECT_TRUE(o.flight(2).is_object()) << o.output;
}

TEST_P(Fault, AStoppedRankEndsAllAfterTheDeadline) {
  const Outcome o = run_fault("stop");
  expect_ended(o);
  EXPECT_GT(o.seconds, kAbort);
  expect_named(o, std::string("rank 0 in ") + GetParam());
  expect_named(o, "not complete after 2 s; missing: rank 1 (still running; last seen in: ");
  expect_flight(o, 0, GetParam());
  EXPECT_TRUE(o.flight(2).is_object()) << o.output;
}

TEST_P(Fault, ALateRankIsReportedOnceAndTheRunGoesOn) {
  const Outcome o = run_fault("delay");
  EXPECT_EQ(o.code, 0) << o.output;
  expect_named(o, "all steps done");
  EXPECT_EQ(o.times(std::string("rank 0 in ") + GetParam()), 1) << o.output;
  expect_named(o, "missing: rank 1");
}

TEST_P(Fault, AnExceptionInOneRankEndsAll) {
  const Outcome o = run_fault("throw");
  expect_ended(o);
  expect_named(o, "error on rank 1 at step 3: the disk is full\nhint: free some space");
  expect_named(o, "told to end (SIGTERM)");
  EXPECT_LT(o.output.find("the disk is full"), o.output.find("told to end"));
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
  const Outcome o = run("return", "all_reduce", folder);
  EXPECT_NE(o.code, 0);
  EXPECT_LT(o.seconds, kAbort) << o.output;
  EXPECT_NE(o.output.find("at step 3: it will never complete; missing: rank 1 (it has returned"), std::string::npos) << o.output;
}

TEST(MpiFault, ADroppedOperationEndsAll) {
  const test::TempDir folder;
  const Outcome o = run("drop", "all_gather", folder);
  EXPECT_NE(o.code, 0);
  EXPECT_NE(o.output.find("rank 1 withdrew from send_recv f32[30000]"), std::string::npos) << o.output;
}

}  // namespace
}  // namespace ingot
