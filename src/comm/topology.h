// The machines of a run, read from a file, and the placement of ranks on them: a pure function. Ranks are
// numbered so that the groups that communicate most (tensor, then expert) are neighbours (comm/grid.h). So a
// placement in order puts a group into one NUMA domain or node wherever it fits, and pipeline stages and data
// groups across nodes.
//
//   [[nodes]]
//   hosts = ["node[01-04]"]           # as Slurm writes them
//   domains = ["0-15", "16-31"]       # cores of each NUMA domain
//   rails = ["mlx5_0", "mlx5_1"]      # the network adapter near each domain; optional
//   ranks_per_domain = 2
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"

namespace ingot {

/// Nodes of one kind.
struct NodeKind {
  std::vector<std::string> hosts, domains, rails;
  int64_t ranks_per_domain = 1;
  template <class Visitor>
  void visit(Visitor& v) {
    v("hosts", hosts, "names, also as node[01-04,7]");
    v("domains", domains, "cores of each NUMA domain");
    v("rails", rails, "the network adapter near each domain");
    v("ranks_per_domain", ranks_per_domain, "ranks that share a domain's cores", between(1, bounds::kRanks));
  }
  void validate(ConfigErrors& errors) const;
};

struct Topology {
  std::vector<NodeKind> nodes;
  template <class Visitor>
  void visit(Visitor& v) {
    v("nodes", nodes, "nodes, in the order in which ranks fill them");
  }
  void validate(ConfigErrors& errors) const;
};

Topology load_topology(const std::string& path);

/// "node[01-03,7]" -> node01 node02 node03 node7. Throws Error for other text with brackets.
std::vector<std::string> expand_hosts(const std::string& text);

/// Groups of neighbouring ranks: ranks 0 .. size - 1, the next `size`, and so on.
struct RankRun {
  std::string name;  ///< "tensor"
  int size = 1;
};

/// Where a rank runs.
struct RankPlace {
  std::string host, rail;
  int domain = 0;          ///< on the host
  std::vector<int> cores;  ///< the rank's share of the domain's
};

/// Places ranks 0 .. ranks - 1. Nodes, and domains in a node, are filled in order; slots stay empty where
/// that keeps the groups of `runs` (those that communicate most come first) whole and enough slots are left.
/// Throws Error if the nodes are too few.
std::vector<RankPlace> place_ranks(const Topology& topology, int ranks, const std::vector<RankRun>& runs);

/// A table for a terminal: where each rank runs, and how many groups of each run lie in one domain, and in
/// one node.
std::string to_text(const std::vector<RankPlace>& places, const std::vector<RankRun>& runs);

}  // namespace ingot
