// Placement of ranks on described machines: hosts and cores as text, groups kept whole, what does not fit
// refused.
#include "comm/topology.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/file_system.h"
#include "comm/cores.h"
#include "support/support.h"

namespace ingot::topology_test {

using Strings = std::vector<std::string>;

Topology nodes(const Strings& hosts, const Strings& domains, int64_t ranks_per_domain) {
  Topology t;
  t.nodes.push_back({hosts, domains, {}, ranks_per_domain});
  return t;
}

/// "a0 a0 a1 b0": host and domain of every rank.
std::string where(const std::vector<RankPlace>& places) {
  std::string text;
  for (const RankPlace& p : places) text += fmt::format("{}{}{}", text.empty() ? "" : " ", p.host, p.domain);
  return text;
}

TEST(Cores, ListsAreReadAndWritten) {
  EXPECT_EQ(parse_cores("0-3,8,10-11", "x"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(cores_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  for (const char* text : {"", "a", "1-", "-1", "3-1", "1,,2", "1,", "0-9999999", "1 2"})
    EXPECT_THROW(parse_cores(text, "x"), Error) << text;
}

TEST(Topology, HostsAreExpandedAsSlurmWritesThem) {
  EXPECT_EQ(expand_hosts("node"), Strings{"node"});
  EXPECT_EQ(expand_hosts("n[08-10,3]-ib"), (Strings{"n08-ib", "n09-ib", "n10-ib", "n3-ib"}));
  for (const char* text : {"n[1", "n1]", "n[]", "n[a]", "n[1-2][3-4]", "n[1-]"})
    EXPECT_THROW(expand_hosts(text), Error) << text;
}

TEST(Topology, RanksFillDomainsAndNodesInOrder) {
  const auto places = place_ranks(nodes({"a", "b"}, {"0-3", "4-7"}, 2), 8, {});
  EXPECT_EQ(where(places), "a0 a0 a1 a1 b0 b0 b1 b1");
  EXPECT_EQ(places[2].cores, (std::vector<int>{4, 5}));
  EXPECT_EQ(places[3].cores, (std::vector<int>{6, 7}));
}

TEST(Topology, PlacesStayEmptyWhereThatKeepsGroupsWhole) {
  // With three slots on a node, tensor pairs would span two nodes.
  const Topology odd = nodes({"a", "b", "c"}, {"0-2"}, 3);
  EXPECT_EQ(where(place_ranks(odd, 6, {{"tensor", 2}})), "a0 a0 b0 b0 c0 c0");
  EXPECT_EQ(where(place_ranks(odd, 8, {{"tensor", 2}})), "a0 a0 a0 b0 b0 b0 c0 c0")
      << "no space to keep them whole";
  // Groups of four fit a node but not a domain of three; pairs fit a domain.
  EXPECT_EQ(where(place_ranks(nodes({"a", "b"}, {"0-2", "3-5"}, 3), 8, {{"tensor", 2}, {"expert", 4}})),
            "a0 a0 a1 a1 b0 b0 b1 b1");
}

/// Any shape: every rank has a slot, cores are not given twice, and groups are whole where they can be.
TEST(Topology, PropertiesOfManyShapes) {
  for (int hosts = 1; hosts <= 4; ++hosts)
    for (int64_t per_domain = 1; per_domain <= 4; ++per_domain)
      for (int tensor = 1; tensor <= 4; ++tensor)
        for (int expert = 1; expert <= 3; ++expert) {
          const int capacity = hosts * 2 * static_cast<int>(per_domain), group = tensor * expert;
          Strings names;
          for (int h = 0; h < hosts; ++h) names.push_back("n" + std::to_string(h));
          const Topology t = nodes(names, {"0-4", "5-9"}, per_domain);
          for (int ranks = group; ranks <= capacity; ranks += group) {
            const auto places = place_ranks(t, ranks, {{"tensor", tensor}, {"expert", group}});
            ASSERT_EQ(places.size(), static_cast<size_t>(ranks));
            std::set<std::pair<std::string, int>> taken;
            for (const RankPlace& p : places) {
              EXPECT_FALSE(p.cores.empty());
              for (const int core : p.cores)
                EXPECT_TRUE(taken.emplace(p.host, core).second) << p.host << core;
            }
            const int per_node = 2 * static_cast<int>(per_domain) / group;
            if (per_node * hosts * group < ranks) continue;
            for (size_t r = 0; r < places.size(); ++r)
              EXPECT_EQ(places[r].host, places[r - r % static_cast<size_t>(group)].host) << where(places);
          }
        }
}

TEST(Topology, FilesAreReadAndMistakesNamed) {
  const test::TempDir folder;
  const auto load = [&](const std::string& text) {
    write_file_atomically(real_file_system(), folder / "t.toml", text);
    return load_topology(folder / "t.toml");
  };
  const auto places = place_ranks(
      load("[[nodes]]\nhosts = [\"n[1-2]\"]\ndomains = [\"0\", \"1\"]\nrails = [\"r0\", \"r1\"]\n"), 4, {});
  EXPECT_EQ(where(places), "n10 n11 n20 n21");
  EXPECT_EQ(places[3].rail, "r1");
  const std::string text = to_text(places, {{"tensor", 2}});
  EXPECT_NE(text.find("tensor groups of 2 ranks: 2, 0 in one NUMA domain, 2 in one node"), std::string::npos)
      << text;
  EXPECT_THROW(place_ranks(load("[[nodes]]\nhosts = [\"a\"]\ndomains = [\"0\"]\n"), 2, {}), Error);
  EXPECT_THROW(load(""), Error);
  EXPECT_THROW(load("[[nodes]]\nhosts = [\"a\"]\ndomains = [\"0\"]\nranks_per_domain = 2\n"), Error)
      << "more ranks than cores";
  EXPECT_THROW(load("[[nodes]]\nhosts = [\"a\"]\ndomains = [\"0\"]\nrails = [\"x\", \"y\"]\n"), Error);
}

}  // namespace ingot::topology_test
