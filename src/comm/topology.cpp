// See topology.h.
#include "comm/topology.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/error.h"
#include "comm/cores.h"

namespace ingot {
namespace {

[[noreturn]] void refuse_hosts(const std::string& text) {
  throw Error(fmt::format("'{}' is not a list of hosts", text),
              "write it as node[01-04,7], with one pair of brackets");
}

int whole_number(const std::string& digits, const std::string& text) {
  int n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.size() > 6) refuse_hosts(text);
  return n;
}

/// How many of `n` ranks go to each node or domain: as many as fit, in order, in multiples of the least
/// common multiple of the sizes of all runs. If not all ranks fit so, the last run is ignored, then the last
/// two, and so on.
std::vector<int> fill(const std::vector<int>& slots, int n, const std::vector<RankRun>& runs) {
  for (size_t kept = runs.size();; --kept) {
    int multiple = 1;
    for (size_t i = 0; i < kept; ++i) multiple = std::lcm(multiple, runs[i].size);
    std::vector<int> filled;
    int left = n;
    for (const int s : slots) {
      filled.push_back(std::min(left, s / multiple * multiple));
      left -= filled.back();
    }
    if (left == 0) return filled;
    INGOT_CHECK(kept > 0, "{} ranks do not fit", left);
  }
}

struct Node {
  std::string host;
  const NodeKind* kind;
  int slots() const {
    return static_cast<int>(kind->domains.size()) * static_cast<int>(kind->ranks_per_domain);
  }
};

void place_on_node(const Node& node, int ranks, const std::vector<RankRun>& runs,
                   std::vector<RankPlace>& places) {
  const NodeKind& k = *node.kind;
  const auto per_domain = static_cast<size_t>(k.ranks_per_domain);
  const std::vector<int> filled =
      fill(std::vector<int>(k.domains.size(), static_cast<int>(per_domain)), ranks, runs);
  for (size_t d = 0; d < filled.size(); ++d) {
    const std::vector<int> cores = parse_cores(k.domains[d], node.host);
    for (size_t i = 0; i < static_cast<size_t>(filled[d]); ++i) {
      const auto at = [&](size_t part) {
        return cores.begin() + static_cast<std::ptrdiff_t>(cores.size() * part / per_domain);
      };
      places.push_back(
          {node.host, k.rails.empty() ? "" : k.rails[d], static_cast<int>(d), {at(i), at(i + 1)}});
    }
  }
}

}  // namespace

void NodeKind::validate(ConfigErrors& errors) const {
  if (hosts.empty()) errors.add("hosts", "names no host");
  if (domains.empty()) errors.add("domains", "names no NUMA domain");
  if (!rails.empty() && rails.size() != domains.size())
    errors.add("rails", "has {} names for {} domains", rails.size(), domains.size());
  for (const std::string& domain : domains)
    if (static_cast<int64_t>(parse_cores(domain, "domains").size()) < ranks_per_domain)
      errors.add("ranks_per_domain", "{} ranks cannot share the cores {}", ranks_per_domain, domain);
}

void Topology::validate(ConfigErrors& errors) const {
  if (nodes.empty()) errors.add("nodes", "names no node");
}

Topology load_topology(const std::string& path) {
  return load_config<Topology>(path, {});
}

std::vector<std::string> expand_hosts(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']');
  if (open == std::string::npos && close == std::string::npos) return {text};
  if (open == std::string::npos || close == std::string::npos || close < open ||
      text.find('[', open + 1) != std::string::npos)
    refuse_hosts(text);
  std::vector<std::string> hosts;
  const std::string before = text.substr(0, open), after = text.substr(close + 1);
  for (size_t at = open + 1; at <= close;) {
    const size_t end = std::min(text.find(',', at), close);
    const std::string item = text.substr(at, end - at), first = item.substr(0, item.find('-'));
    const std::string last = item.find('-') == std::string::npos ? first : item.substr(item.find('-') + 1);
    const int stop = whole_number(last, text);
    for (int n = whole_number(first, text); n <= stop; ++n)
      hosts.push_back(fmt::format("{}{:0{}}{}", before, n, first.size(), after));
    at = end + 1;
  }
  return hosts;
}

std::vector<RankPlace> place_ranks(const Topology& topology, int ranks, const std::vector<RankRun>& runs) {
  std::vector<Node> nodes;
  std::vector<int> slots;
  for (const NodeKind& kind : topology.nodes)
    for (const std::string& hosts : kind.hosts)
      for (std::string& host : expand_hosts(hosts)) {
        nodes.push_back({std::move(host), &kind});
        slots.push_back(nodes.back().slots());
      }
  if (const int all = std::accumulate(slots.begin(), slots.end(), 0); all < ranks)
    throw Error(fmt::format("the topology has {} places for ranks, {} are asked for", all, ranks),
                "describe more nodes, or raise ranks_per_domain");
  const std::vector<int> filled = fill(slots, ranks, runs);
  std::vector<RankPlace> places;
  for (size_t i = 0; i < nodes.size(); ++i) place_on_node(nodes[i], filled[i], runs, places);
  return places;
}

std::string to_text(const std::vector<RankPlace>& places, const std::vector<RankRun>& runs) {
  std::string text =
      fmt::format("{:>6}  {:<16} {:>6}  {:<16} {}\n", "rank", "host", "domain", "cores", "rail");
  for (size_t r = 0; r < places.size(); ++r)
    text += fmt::format("{:>6}  {:<16} {:>6}  {:<16} {}\n", r, places[r].host, places[r].domain,
                        cores_text(places[r].cores), places[r].rail);
  for (const RankRun& run : runs) {
    if (run.size == 1) continue;
    const auto size = static_cast<size_t>(run.size);
    size_t in_domain = 0, in_node = 0;
    for (size_t first = 0; first + size <= places.size(); first += size) {
      const auto all = [&](auto same) { return std::all_of(&places[first], &places[first] + size, same); };
      in_node += all([&](const RankPlace& p) { return p.host == places[first].host; });
      in_domain += all([&](const RankPlace& p) {
        return p.host == places[first].host && p.domain == places[first].domain;
      });
    }
    text += fmt::format("{} groups of {} ranks: {}, {} in one NUMA domain, {} in one node\n", run.name,
                        run.size, places.size() / size, in_domain, in_node);
  }
  return text;
}

}  // namespace ingot
