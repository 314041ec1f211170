// How long collectives take on the links of a cluster: latency, and bytes over the rate of the level that
// they cross, by algorithm. A measured curve beats the formula inside its range. Formulas: bytes are those
// of a rank's buffer, the larger one of input and output, as in comm/measure.h.
//
//   ring        sum, or its halves: every byte passes every boundary between domains once in each adapter,
//               and every rank once (a sum twice), hop by hop
//   tree        sum over several domains, up and down: fewer hops, between two domains half of the bytes;
//               what is faster counts (hops and rates as in NCCL's tuning model, src/graph/tuning.cc)
//   pairwise    all-to-all: what goes to other domains crosses the outer level
//   once        a token to each rank (device) or once to each domain that has one of its experts, as DeepEP
//               and HybridEP send; which those are depends on the routing (Locality)
#pragma once
#include <string>

#include "comm/communicator.h"
#include "measure/cluster.h"

namespace ingot {

/// The ranks of a group: how many, and how many of them share an innermost domain.
struct GroupShape {
  int ranks = 1;
  int inside = 1;
};

/// Where the experts of a token lie: `kept` of `groups` equal groups are chosen, then k experts inside them.
struct Locality {
  int experts = 1, k = 1, groups = 1, kept = 1;
};

/// How many of `bins` equal parts of the experts have one of a token's k, on average.
double distinct_bins(const Locality& routing, int bins);

struct LinkTime {
  double seconds = 0;
  Quality quality = Quality::described;
};

class Fabric {
 public:
  /// `degraded`: the rate of every level from the second on is multiplied by it.
  explicit Fabric(const Cluster& cluster, double degraded = 1) : cluster_(cluster), degraded_(degraded) {}

  /// `concurrent`: groups that use the same links at once.
  LinkTime collective(CommKind kind, const GroupShape& group, double bytes, int concurrent = 1) const;
  /// A message from one rank to another, inside an innermost domain or across.
  LinkTime message(bool across, double bytes) const;
  /// A token of `token_bytes` once to each device that has one of its experts, and once across to each
  /// domain.
  LinkTime once(const Locality& routing, const GroupShape& group, double tokens, double token_bytes) const;
  /// Bus bandwidth of a collective in bytes per second, as comm/measure.h counts it.
  double bus_bandwidth(CommKind kind, const GroupShape& group, double bytes) const;

 private:
  const LinkLevel* inner() const { return cluster_.links.empty() ? nullptr : &cluster_.links.front(); }
  const LinkLevel* outer() const { return cluster_.links.size() < 2 ? inner() : &cluster_.links[1]; }
  double rate(const LinkLevel& level, int ranks) const;
  /// Between so many domains, which may lie on several leaves.
  double outer_rate_of(int ranks, int domains) const;
  LinkTime formula(CommKind kind, const GroupShape& group, double bytes) const;
  const BandwidthCurve* curve(CommKind kind, int ranks, double bytes) const;

  const Cluster& cluster_;
  double degraded_;
};

}  // namespace ingot
