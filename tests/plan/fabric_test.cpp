// Times of collectives: every cell of the published table of expert communication, links of a mesh, and the
// sums and exchanges across nodes that follow from one number, the rate of a message.
#include "measure/fabric.h"

#include <gtest/gtest.h>

#include "support/support.h"

namespace ingot::test::fabric_test {

const char* const kDevice = "[device]\nmemory = \"80GB\"\nbandwidth = 3350.0\nrates = { bf16 = 990.0 }\n";

Cluster cluster(const std::string& links) {
  return cluster_from_text(kDevice + links, "test");
}

std::string level(int ranks, const char* kind, double gb_per_s, double latency_us = 0,
                  const char* more = "") {
  return fmt::format("[[links]]\nranks = {}\nkind = \"{}\"\ngb_per_s = {:.3f}\nlatency_us = {:.3f}\n{}\n",
                     ranks, kind, gb_per_s, latency_us, more);
}

/// The table's exchange: 4,096 tokens of 7,168 channels in bf16; all eight choices are sent, or each token
/// once.
constexpr double kTokens = 4096, kToken = 7168 * 2, kAll = kTokens * 8 * kToken;

double microseconds(const LinkTime& t) {
  return 1e6 * t.seconds;
}

struct Cells {
  const char* of;
  std::string links;
  int domain;
  bool once;
  double printed[4];  ///< experts over 8, 16, 32, 64 ranks
  double bar;
};

/// One rate a level and direction (and a constant where tokens are sent once) fit four cells each.
TEST(Fabric, ExpertCommunicationOfThePublishedTable) {
  const Cells table[] = {
      {"H100 dispatch",
       level(8, "switch", 324) + level(0, "rails", 45.6),
       8,
       false,
       {1265, 5774, 8059, 9164},
       0.015},
      {"H100 combine",
       level(8, "switch", 320) + level(0, "rails", 47.6),
       8,
       false,
       {1277, 5628, 7815, 8727},
       0.015},
      {"GB200 dispatch", level(72, "switch", 605, 1.8), 72, false, {735, 743, 769, 930}, 0.06},
      {"GB200 combine", level(72, "switch", 580, 0.2), 72, false, {741, 765, 758, 827}, 0.06},
      {"H100 dispatch, once",
       level(8, "switch", 355, 150) + level(0, "rails", 43, 150),
       8,
       true,
       {661, 1485, 3064, 4626},
       0.08},
      {"H100 combine, once",
       level(8, "switch", 400, 200) + level(0, "rails", 41.5, 200),
       8,
       true,
       {624, 1688, 3088, 4398},
       0.08},
      {"GB200 dispatch, once", level(72, "switch", 805, 180), 72, true, {391, 578, 612, 675}, 0.06},
      {"GB200 combine, once", level(72, "switch", 620, 50), 72, true, {353, 527, 646, 744}, 0.06},
  };
  const Locality node_limited{256, 8, 8, 4};
  for (const Cells& c : table) {
    const Cluster here = cluster(c.links);
    const Fabric fabric(here);
    int ranks = 8;
    for (const double printed : c.printed) {
      const GroupShape group{ranks, std::min(ranks, c.domain)};
      const double found = microseconds(c.once ? fabric.once(node_limited, group, kTokens, kToken)
                                               : fabric.collective(CommKind::all_to_all, group, kAll));
      EXPECT_NEAR(found, printed, c.bar * printed) << c.of << ", " << ranks << " ranks";
      ranks *= 2;
    }
  }
}

/// What the table does not say: its routing. With uniform routing no rate that the adapters have fits it.
TEST(Fabric, UniformRoutingDoesNotFitThePublishedTable) {
  const Cluster h100 = cluster(level(8, "switch", 355, 150) + level(0, "rails", 43, 150));
  const double found = microseconds(Fabric(h100).once({256, 8, 1, 1}, {64, 8}, kTokens, kToken));
  EXPECT_GT(found, 1.2 * 4626);
}

TEST(Fabric, CopiesOfATokenFollowTheRouting) {
  const Locality node_limited{256, 8, 8, 4}, uniform{256, 8, 1, 1};
  const double limited_devices[] = {3.63, 5.34, 6.60, 7.36}, uniform_devices[] = {5.29, 6.52, 7.27, 7.68};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(distinct_bins(node_limited, 8 << i), limited_devices[i], 0.005);
    EXPECT_NEAR(distinct_bins(uniform, 8 << i), uniform_devices[i], 0.005);
  }
  const double limited_nodes[] = {1.93, 2.93, 3.63}, uniform_nodes[] = {1.99, 3.61, 5.30};
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(distinct_bins(node_limited, 2 << i), limited_nodes[i], 0.005);
    EXPECT_NEAR(distinct_bins(uniform, 2 << i), uniform_nodes[i], 0.006);  // printed with two digits
  }
}

TEST(Fabric, AMeshHasALinkToEveryOtherRank) {
  const Cluster c = cluster(level(8, "mesh", 64));
  const Fabric fabric(c);
  const auto bandwidth = [&](int ranks) {
    return 1e-9 * fabric.bus_bandwidth(CommKind::all_gather, {ranks, ranks}, 1e9);
  };
  EXPECT_NEAR(bandwidth(2), 64, 1e-6);
  EXPECT_NEAR(bandwidth(4), 192, 1e-6);
  EXPECT_NEAR(bandwidth(8), 448, 1e-6);
}

/// Playbook §2.10: from 43 GB/s of a message and the rows of one node.
TEST(Fabric, CollectivesAcrossNodesFollowFromAMessage) {
  const std::string inside = "reduce_gb_per_s = 480.0", across = "overlaps = true";
  const Cluster c =
      cluster(level(8, "switch", 342, 0, inside.c_str()) + level(0, "rails", 43, 0, across.c_str()));
  const Fabric fabric(c);
  const auto bus = [](const Fabric& f, CommKind kind, int nodes) {
    return 1e-9 * f.bus_bandwidth(kind, {8 * nodes, 8}, 4e9);
  };
  EXPECT_NEAR(bus(fabric, CommKind::all_reduce, 1), 480, 1);
  EXPECT_NEAR(bus(fabric, CommKind::all_reduce, 2), 479, 10);
  for (int nodes = 3; nodes <= 16; ++nodes) {
    const double sum = bus(fabric, CommKind::all_reduce, nodes);
    EXPECT_GE(sum, 320) << nodes;
    EXPECT_LE(sum, 350) << nodes;
  }
  EXPECT_NEAR(bus(fabric, CommKind::all_to_all, 2), 81, 1);
  for (const int nodes : {4, 8, 16}) {
    EXPECT_GE(bus(fabric, CommKind::all_to_all, nodes), 45) << nodes;
    EXPECT_LE(bus(fabric, CommKind::all_to_all, nodes), 58) << nodes;
  }
  // Half of the channels: 21 instead of 43 GB/s.
  EXPECT_NEAR(bus(Fabric(c, 0.5), CommKind::all_to_all, 4), 0.5 * bus(fabric, CommKind::all_to_all, 4), 0.1);
}

/// Playbook §2.10, of no bytes: an exchange over 1, 2 and 16 nodes takes what the constants of
/// clusters/h100-ib.toml say, which were fitted to another machine's exchanges. A sum of two nodes and more
/// climbs a tree: one hop fits the three rows.
TEST(Fabric, LatenciesFollowFromMessagesAndHops) {
  const Cluster c =
      cluster(level(8, "switch", 342, 1, "hop_us = 0.92") + level(0, "rails", 43, 5, "hop_us = 28.0"));
  const auto latency = [&](CommKind kind, int nodes) {
    return microseconds(Fabric(c).collective(kind, {8 * nodes, 8}, 1));
  };
  EXPECT_NEAR(latency(CommKind::all_to_all, 1), 7.6, 0.1 * 7.6);
  EXPECT_NEAR(latency(CommKind::all_to_all, 2), 60, 0.22 * 60);
  EXPECT_NEAR(latency(CommKind::all_to_all, 16), 621, 0.03 * 621);
  EXPECT_NEAR(latency(CommKind::all_reduce, 1), 12.9, 0.01 * 12.9);
  EXPECT_NEAR(latency(CommKind::all_reduce, 2), 55.5, 0.25 * 55.5);
  EXPECT_NEAR(latency(CommKind::all_reduce, 16), 235, 0.02 * 235);
}

/// NCCL's tuning model: a gather of n ranks in d domains has d - 1 hops across and n - d inside, a sum by
/// ring both twice, by tree the height of a domain and of a binary tree of domains up and down.
TEST(Fabric, HopsAreThoseOfNccl) {
  const Cluster c =
      cluster(level(8, "switch", 325, 1, "hop_us = 3.4") + level(0, "rails", 45, 5, "hop_us = 14.0"));
  const Fabric fabric(c);
  const GroupShape group{192, 4};
  const double bytes = 1e6, across = bytes * 191 / 192 / (4 * 45e3);
  EXPECT_NEAR(microseconds(fabric.collective(CommKind::all_gather, group, bytes)),
              across + 144 * 3.4 + 47 * 14, 1e-6);
  EXPECT_NEAR(microseconds(fabric.collective(CommKind::reduce_scatter, group, bytes)),
              across + 144 * 3.4 + 47 * 14, 1e-6);
  EXPECT_NEAR(microseconds(fabric.collective(CommKind::all_reduce, group, bytes)),
              2 * bytes / (0.92 * 4 * 45e3) + 2 * (3 * 3.4 + 6 * 14), 1e-6);
  EXPECT_NEAR(microseconds(fabric.collective(CommKind::all_reduce, group, 1e11)),
              2e11 * 191 / 192 / (4 * 45e3) + 2 * (144 * 3.4 + 47 * 14), 1e-3)
      << "of many bytes the ring is faster";
  EXPECT_NEAR(microseconds(fabric.message(true, 45e3)), 14 + 1, 1e-9);
}

TEST(Fabric, AMeasuredCurveBeatsTheFormula) {
  const Cluster c = cluster(
      level(8, "switch", 325) +
      "[[curves]]\ncollective = \"all_reduce\"\nranks = 8\nbytes = [1e6, 1e8]\ngb_per_s = [100.0, 300.0]\n");
  const Fabric fabric(c);
  EXPECT_NEAR(1e-9 * fabric.bus_bandwidth(CommKind::all_reduce, {8, 8}, 1e7), 200, 1e-6);
  EXPECT_EQ(fabric.collective(CommKind::all_reduce, {8, 8}, 1e7).quality, Quality::measured);
  EXPECT_NEAR(1e-9 * fabric.bus_bandwidth(CommKind::all_reduce, {8, 8}, 1e9), 325, 1e-6) << "outside of it";
}

TEST(Fabric, AnotherTopologyGivesAnotherAnswer) {
  const Cluster wide = cluster(level(72, "switch", 590)),
                narrow = cluster(level(8, "switch", 590) + level(0, "rails", 45));
  const GroupShape in_one{64, 64}, in_eight{64, 8};
  EXPECT_GT(Fabric(narrow).collective(CommKind::all_to_all, in_eight, 1e9).seconds,
            5 * Fabric(wide).collective(CommKind::all_to_all, in_one, 1e9).seconds);
}

}  // namespace ingot::test::fabric_test
