// Measuring communication: every combination is measured, all ranks agree, and derived numbers follow their
// definition. Also the two commands around it: `ingot bench comm`, `ingot launch`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/file_system.h"
#include "comm/measure.h"
#include "comm/self_test.h"
#include "comm/threads.h"
#include "measure/comm_report.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::measure_ranks_test {

using test::run_process;

TEST(MeasureComm, MeasuresEveryCombinationAndAllRanksAgree) {
  for (const int ranks : {2, 3, 5}) {
    std::vector<std::string> reports(static_cast<size_t>(ranks));
    CommReport first;
    run_ranks(ranks, [&](ThreadRank& self) {
      const CommReport r = measure_comm(
          self, {.ranks = {2, ranks}, .bytes = {1024, 40000}, .seconds = 1e-4, .cold = ranks == 2});
      reports[static_cast<size_t>(self.rank())] = to_json(r, "test");
      if (self.rank() == 0) first = r;
    });
    for (const std::string& r : reports) EXPECT_EQ(r, reports[0]);
    EXPECT_EQ(first.measurements.size(), 2u * (5 * 2 + 1));  // a barrier has no size
    EXPECT_EQ(first.speeds.size(), static_cast<size_t>(ranks));
    for (size_t i = 1; i < first.speeds.size(); ++i)
      EXPECT_LE(first.speeds[i - 1].bandwidth, first.speeds[i].bandwidth);
    for (const CommMeasurement& m : first.measurements) {
      EXPECT_GT(m.seconds, 0);
      EXPECT_EQ(m.bytes % (4 * m.ranks), 0);
      const double factor = m.kind == CommKind::all_reduce ? 2 * (m.ranks - 1.0) / m.ranks
                            : m.kind == CommKind::broadcast || m.kind == CommKind::barrier
                                ? 1
                                : (m.ranks - 1.0) / m.ranks;
      EXPECT_NEAR(m.bus_bandwidth * m.seconds, factor * static_cast<double>(m.bytes), 1e-6);
    }
  }
}

TEST(MeasureComm, ABucketIsTheSmallestSizeNearTheBestBandwidth) {
  CommReport r;
  const auto add = [&](CommKind kind, int ranks, int64_t bytes, double bandwidth) {
    r.measurements.push_back({kind, ranks, bytes, 1, bandwidth});
  };
  add(CommKind::reduce_scatter, 2, 1000, 50);
  add(CommKind::reduce_scatter, 2, 4000, 91);
  add(CommKind::reduce_scatter, 2, 16000, 100);
  add(CommKind::reduce_scatter, 4, 1000, 100);
  add(CommKind::all_gather, 2, 1000, 500);
  EXPECT_EQ(suggested_bucket(r, 2), 4000);
  EXPECT_EQ(suggested_bucket(r, 4), 1000);
  EXPECT_EQ(suggested_bucket(r, 8), 0);
}

TEST(MeasureComm, ABucketIsMeasuredOnItsGroup) {
  std::vector<int64_t> found(3);
  run_ranks(3, [&](ThreadRank& self) {
    const auto group = self.group("data", {0, 1, 2});
    found[static_cast<size_t>(self.rank())] = measure_bucket(*group, 0.1);
  });
  EXPECT_GE(found[0], int64_t{60} << 10);
  EXPECT_LE(found[0], int64_t{64} << 20);
  EXPECT_EQ(found, std::vector<int64_t>(3, found[0])) << "all ranks get the same";
  EXPECT_EQ(measure_bucket(*self_communicator("data")), 0);
}

TEST(BenchComm, PrintsTablesAndWritesJsonAndPlots) {
  const test::TempDir folder;
  const auto r = run_process({INGOT_BINARY, "bench", "comm", "--ranks", "2,3", "--smallest", "4KiB",
                              "--largest", "16KiB", "--seconds", "0.0005", "--json", folder / "comm.json",
                              "--html", folder / "comm.html"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("all_reduce among 3 ranks"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("slowest first:"), std::string::npos) << r.output;
  const auto json = nlohmann::json::parse(real_file_system().read(folder / "comm.json"));
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["backend"], "3 threads of one process");
  EXPECT_EQ(json["collectives"].size(), 2u * (5 * 2 + 1));
  EXPECT_EQ(json["buckets"].size(), 2u);
  EXPECT_EQ(json["speeds"].size(), 3u);
  EXPECT_EQ(json["messages"].size(), 3u * 2 * (1 + 2)) << "ordered pairs; empty, 4 KiB, 16 KiB";
  ASSERT_EQ(json["pairs"].size(), 3u * 2);
  for (const auto& p : json["pairs"]) {
    EXPECT_NE(p["from"], p["to"]);
    for (const char* field : {"latency_seconds", "bytes_per_second", "beta_bytes_per_second"})
      EXPECT_GT(p[field], 0) << field;
    EXPECT_LE(p["residual"], p["largest_residual"]);
    EXPECT_LT(p["from_bytes"], p["to_bytes"]);
  }
  for (const char* text :
       {"messages from one rank to another, median and spread of 6 pairs", "latency of an empty message, us",
        "bandwidth of a message of 16", "time = alpha + bytes / beta", "beta, GB/s"})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  const std::string page = real_file_system().read(folder / "comm.html");
  for (const char* text : {"Bus bandwidth among 2 ranks", "Time among 3 ranks",
                           "&quot;log2&quot;:&quot;bytes&quot;", "A barrier takes", "rank 2",
                           "Time of a message from rank 0 to 1", "latency of an empty message", "</html>"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
  for (const char* not_finite : {"inf,", "nan", "-inf"})
    EXPECT_EQ(page.find(not_finite), std::string::npos) << not_finite;
}

TEST(Partners, EveryRoundIsAMatchingAndAllMeetOnce) {
  for (int n = 2; n <= 17; ++n) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < partner_rounds(n); ++round)
      for (int r = 0; r < n; ++r) {
        const int p = partner_of(r, n, round);
        if (p < 0) continue;
        ASSERT_TRUE(p < n && p != r && partner_of(p, n, round) == r)
            << n << " ranks, round " << round << ": " << r << " and " << p;
        EXPECT_TRUE(met.emplace(r, p).second);
      }
    EXPECT_EQ(met.size(), static_cast<size_t>(n * (n - 1)));
  }
}

TEST(SelfTest, ASlowRankIsNamedOrRefused) {
  const std::vector<std::string> hosts{"a", "b", "c", "d"};
  const std::vector<RankSpeed> even{{2, 0.9e9}, {0, 1e9}, {1, 1e9}, {3, 1.1e9}},
      uneven{{2, 0.3e9}, {0, 1e9}, {1, 1e9}, {3, 1.1e9}};
  EXPECT_EQ(judge_speeds(even, hosts, 1 << 20, 0.1).warning, "");
  EXPECT_EQ(judge_speeds(uneven, hosts, 1 << 20, 0.1).warning,
            "rank 2 on 'c' exchanges 0.3 GB/s with others, the median of 4 ranks is 1 GB/s");
  EXPECT_THROW(judge_speeds(uneven, hosts, 1 << 20, 0.4), Error);
  EXPECT_EQ(judge_speeds({{0, 0.1e9}, {1, 1e9}}, hosts, 1 << 20, 0.4).warning, "")
      << "of two ranks nobody knows which is slow";
}

TEST(BenchComm, RefusesWhatCannotBeMeasured) {
  const auto one = run_process({INGOT_BINARY, "bench", "comm", "--ranks", "1"});
  EXPECT_EQ(one.exit_code, 1);
  EXPECT_NE(one.output.find("--ranks=1"), std::string::npos) << one.output;
  EXPECT_EQ(run_process({INGOT_BINARY, "bench", "comm", "--smallest", "1MiB", "--largest", "1KiB"}).exit_code,
            1);
}

TEST(LaunchCommand, HandsPlacementToMpirunAndTheRestToTheRanks) {
  const auto r = run_process({INGOT_BINARY, "launch", "-n", "4", "--mpirun", "/opt/mpirun", "--print",
                              "--bind-to", "core", "--", "run", "a.toml", "--phases.0.lr=2", "--", "x"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_EQ(r.output, std::string("/opt/mpirun -n 4 --bind-to core ") + INGOT_BINARY +
                          " run a.toml --phases.0.lr=2 -- x\n");
}

TEST(LaunchCommand, SaysWhatIsMissing) {
  const auto nothing = run_process({INGOT_BINARY, "launch", "-n", "4"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_NE(nothing.output.find("ingot launch -n 4 -- run recipe.toml"), std::string::npos) << nothing.output;
  const auto absent =
      run_process({INGOT_BINARY, "launch", "-n", "2", "--mpirun", "/nowhere/mpirun", "--", "kernels"});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_NE(absent.output.find("/nowhere/mpirun"), std::string::npos) << absent.output;
}

}  // namespace ingot::measure_ranks_test
