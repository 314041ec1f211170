// See fabric.h.
#include "measure/fabric.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

/// C(n - without, k) / C(n, k): none of k chosen things is among `without` of n.
double none_of(double n, double without, double k) {
  double share = 1;
  for (double i = 0; i < k; ++i) share *= std::max(0.0, n - without - i) / (n - i);
  return share;
}

double binomial(int n, int k) {
  double c = 1;
  for (int i = 0; i < k; ++i) c *= static_cast<double>(n - i) / (i + 1);
  return k < 0 || k > n ? 0 : c;
}

/// Of the bytes of a collective, those that one rank sends to others, times the boundary factor of
/// comm/measure.h.
double bus_factor(CommKind kind, int ranks) {
  const double share = (ranks - 1.0) / ranks;
  return kind == CommKind::all_reduce                                 ? 2 * share
         : kind == CommKind::broadcast || kind == CommKind::send_recv ? 1
                                                                      : share;
}

/// Of a ring's rate, that two trees across domains reach (NCCL's tuning model).
constexpr double kTreeShare = 0.92;

}  // namespace

double distinct_bins(const Locality& r, int bins) {
  INGOT_CHECK(r.experts % r.groups == 0 && r.kept >= 1 && r.kept <= r.groups && bins >= 1,
              "{} experts, {} bins", r.experts, bins);
  const double in_group = static_cast<double>(r.experts) / r.groups, chosen = in_group * r.kept;
  if (bins >= r.groups) {
    const double per_group = static_cast<double>(bins) / r.groups;
    return r.kept * per_group * (1 - none_of(chosen, in_group / per_group, r.k));
  }
  const int groups = r.groups / bins;  // of a bin
  double missed = 0;
  for (int g = 0; g <= groups; ++g)
    missed += binomial(groups, g) * binomial(r.groups - groups, r.kept - g) / binomial(r.groups, r.kept) *
              none_of(chosen, g * in_group, r.k);
  return bins * (1 - missed);
}

double Fabric::rate(const LinkLevel& level, int ranks) const {
  const double change = &level == inner() ? 1 : degraded_;
  const double links = level.kind == LinkKind::mesh ? ranks - 1 : 1;
  // One memory: a byte that is sent is written and read, and all ranks share its rate.
  const double share = level.kind == LinkKind::shared ? 1.0 / ranks : 1;
  return 1e9 * level.gb_per_s * links * share * change;
}

double Fabric::outer_rate_of(int ranks, int domains) const {
  const LinkLevel& level = *outer();
  const bool crosses = level.domains_per_leaf > 0 && domains > level.domains_per_leaf;
  return rate(level, ranks) / (crosses ? level.oversubscribed : 1);
}

const BandwidthCurve* Fabric::curve(CommKind kind, int ranks, double bytes) const {
  for (const BandwidthCurve& c : cluster_.curves)
    if (c.collective == name_of(kind) && c.ranks == ranks && bytes >= c.bytes.front() &&
        bytes <= c.bytes.back())
      return &c;
  return nullptr;
}

LinkTime Fabric::collective(CommKind kind, const GroupShape& group, double bytes, int concurrent) const {
  if (group.ranks <= 1 || cluster_.links.empty()) return {};
  if (const BandwidthCurve* c = curve(kind, group.ranks, bytes)) {
    size_t i = 1;
    while (i + 1 < c->bytes.size() && c->bytes[i] < bytes) ++i;
    double gbs = c->gb_per_s.front();
    if (c->bytes.size() > 1) {
      const double at = std::log(bytes / c->bytes[i - 1]) / std::log(c->bytes[i] / c->bytes[i - 1]);
      gbs = c->gb_per_s[i - 1] + at * (c->gb_per_s[i] - c->gb_per_s[i - 1]);
    }
    return {bytes * bus_factor(kind, group.ranks) * concurrent / (1e9 * gbs), c->quality};
  }
  return formula(kind, group, bytes * concurrent);
}

LinkTime Fabric::formula(CommKind kind, const GroupShape& group, double bytes) const {
  const int n = group.ranks, a = std::max(1, group.inside), domains = (n + a - 1) / a;
  const LinkLevel &in = *inner(), &out = *outer();
  const double inner_rate = rate(in, a), outer_rate = outer_rate_of(n, domains);
  const Quality quality = domains > 1 ? std::min(in.quality, out.quality) : in.quality;
  if (kind == CommKind::all_to_all) {
    const double to_inside = in.latency_us * 1e-6, to_outside = out.latency_us * 1e-6;
    const double inside = bytes * (a - 1) / n / inner_rate + to_inside * (a - 1);
    const double across = domains > 1 ? bytes * (n - a) / n / outer_rate + to_outside * (n - a) : 0;
    return {domains > 1 && out.overlaps ? std::max(inside, across) : inside + across, quality};
  }
  const double sent = bytes * bus_factor(kind, n);
  const bool reduces = kind == CommKind::all_reduce || kind == CommKind::reduce_scatter;
  const double inside_rate = reduces && in.reduce_gb_per_s > 0 ? 1e9 * in.reduce_gb_per_s : inner_rate;
  const double inside = a > 1 ? sent / inside_rate : 0;
  // In one memory ranks read each other's sums; elsewhere a sum passes its ring twice.
  const int rounds = kind == CommKind::all_reduce && in.kind != LinkKind::shared ? 2 : 1;
  const double ring_hops = rounds * ((n - domains) * in.hop() + (domains - 1) * out.hop());
  if (domains == 1) return {inside + ring_hops, quality};
  // Every adapter of a domain carries a ring of its own.
  const double ring = std::max(inside, sent / (a * outer_rate)) + ring_hops;
  if (kind != CommKind::all_reduce) return {ring, quality};
  const double across = (domains == 2 ? 1 : 2) * bytes / (kTreeShare * a * outer_rate);
  const double tree_hops = 2 * ((a - 1) * in.hop() + std::ceil(std::log2(domains)) * out.hop());
  return {std::min(ring, std::max(inside, across) + tree_hops), quality};
}

LinkTime Fabric::message(bool across, double bytes) const {
  if (cluster_.links.empty()) return {};
  const LinkLevel& level = across ? *outer() : *inner();
  return {level.hop() + bytes / rate(level, 2), level.quality};
}

LinkTime Fabric::once(const Locality& routing, const GroupShape& group, double tokens,
                      double token_bytes) const {
  if (group.ranks <= 1 || cluster_.links.empty()) return {};
  const int n = group.ranks, a = std::max(1, group.inside), domains = (n + a - 1) / a;
  const double one = tokens * token_bytes;
  const double inside = one * distinct_bins(routing, n) * (a - 1) / a / rate(*inner(), a);
  if (domains == 1) return {inside + inner()->latency_us * 1e-6, inner()->quality};
  const double across =
      one * distinct_bins(routing, domains) * (1 - 1.0 / domains) / outer_rate_of(n, domains);
  return {std::max(inside, across) + outer()->latency_us * 1e-6,
          std::min(inner()->quality, outer()->quality)};
}

double Fabric::bus_bandwidth(CommKind kind, const GroupShape& group, double bytes) const {
  const double seconds = collective(kind, group, bytes).seconds;
  return seconds > 0 ? bytes * bus_factor(kind, group.ranks) / seconds : 0;
}

}  // namespace ingot
