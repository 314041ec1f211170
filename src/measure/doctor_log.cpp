// See doctor_log.h.
#include "measure/doctor_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "measure/doctor_parts.h"

namespace ingot::doctor {
namespace {

/// "0[0] -> 1[1] [send] via NET/IB/0/GDRDMA".
struct Hop {
  int from = -1, to = -1;
  bool receives = false;
  std::string way;
};

int number_at(std::string_view text) {
  int value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// The number that ends here: "..., 2" -> 2.
int number_before(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  return number_at(text.substr(begin));
}

bool read_hop(std::string_view line, Hop& hop) {
  const size_t arrow = line.find("] -> "), via = line.find(" via ");
  if (arrow == line.npos || via == line.npos || via < arrow) return false;
  const size_t open = line.rfind('[', arrow);
  if (open == line.npos || open == 0) return false;
  hop.from = number_before(line.substr(0, open));
  hop.to = number_at(line.substr(arrow + 5));
  hop.receives = line.substr(arrow, via - arrow).find("[receive]") != line.npos;
  hop.way = std::string(line.substr(via + 5));
  hop.way.resize(std::min(hop.way.find_first_of(" \t\r"), hop.way.size()));
  return hop.from >= 0 && hop.to >= 0;
}

struct Transport {
  bool any = false;
  std::vector<std::tuple<std::string, Hop>> hops;  ///< with the host of the line
  std::set<std::string> set_by_environment;        ///< "NCCL_P2P_DISABLE=1"
  int peer_channels = -1;                          ///< the fewest that the log names
};

Transport read_transport(std::string_view text) {
  Transport t;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t info = line.find("NCCL INFO ");
    if (info == line.npos) continue;
    t.any = true;
    const std::string_view said = line.substr(info + 10);
    constexpr std::string_view kSet = " set by environment to ", kPerPeer = " p2p channels per peer";
    if (Hop hop; said.starts_with("Channel ") && read_hop(said, hop)) {
      const size_t host = line.substr(0, info).find(':');
      t.hops.emplace_back(line.substr(0, host == line.npos ? 0 : host), hop);
    } else if (const size_t set = said.find(kSet); set != said.npos) {
      std::string value(said.substr(set + kSet.size()));
      while (!value.empty() && (value.back() == '.' || value.back() == '\r')) value.pop_back();
      t.set_by_environment.insert(std::string(said.substr(0, set)) + "=" + value);
    } else if (const size_t per = said.find(kPerPeer); per != said.npos) {
      const int channels = number_before(said.substr(0, per));
      if (channels >= 0)
        t.peer_channels = t.peer_channels < 0 ? channels : std::min(t.peer_channels, channels);
    }
  }
  return t;
}

/// "0 -> 1, 1 -> 0 and 6 more".
std::string pairs_text(const std::set<std::pair<int, int>>& pairs) {
  std::string text;
  size_t shown = 0;
  for (const auto& [from, to] : pairs) {
    if (shown == 3) break;
    text += fmt::format("{}{} -> {}", shown > 0 ? ", " : "", from, to);
    ++shown;
  }
  return text + (pairs.size() > shown ? fmt::format(" and {} more", pairs.size() - shown) : "");
}

/// What switched peer access off, if the log says it.
std::string peer_remedy(const std::set<std::string>& set) {
  for (const std::string& variable : set)
    if (variable.starts_with("NCCL_P2P_DISABLE=") && !variable.ends_with("=0"))
      return "unset NCCL_P2P_DISABLE: it sends what NVLink would carry through the host, a hundred times "
             "slower";
  for (const std::string& variable : set)
    if (variable.starts_with("NCCL_P2P_LEVEL="))
      return fmt::format("unset NCCL_P2P_LEVEL (the log has {}): it limits how far peers may be", variable);
  return "see `nvidia-smi topo -p2p r`; in a container, give it all devices of the host, and its IPC "
         "namespace";
}

void judge_transport(const std::string& name, const Transport& t, Findings& out) {
  std::map<int, std::string> hosts;  // of ranks: who prints a line has one end of it
  for (const auto& [host, hop] : t.hops) hosts[hop.receives ? hop.to : hop.from] = host;
  const auto together = [&](const Hop& h) {
    const auto from = hosts.find(h.from), to = hosts.find(h.to);
    return from != hosts.end() && to != hosts.end() && from->second == to->second;
  };
  std::set<std::pair<int, int>> peers, by_memory, by_network, sockets, staged, direct;
  for (const auto& [host, hop] : t.hops) {
    const std::pair<int, int> pair{hop.from, hop.to};
    const bool network = hop.way.starts_with("NET/");
    if (hop.way.starts_with("P2P")) peers.insert(pair);
    if (hop.way.starts_with("SHM")) by_memory.insert(pair);
    if (network && together(hop)) by_network.insert(pair);
    if (!network || together(hop)) continue;
    if (hop.way.starts_with("NET/Socket"))
      sockets.insert(pair);
    else
      (hop.way.find("GDRDMA") == std::string::npos ? staged : direct).insert(pair);
  }
  if (!by_memory.empty() || !by_network.empty()) {
    std::string text = fmt::format("{}:", name);
    if (!by_memory.empty())
      text += fmt::format(" ranks {} exchange through the host's memory{}", pairs_text(by_memory),
                          by_network.empty() ? "" : ",");
    if (!by_network.empty())
      text += fmt::format(" ranks {} of one host through the network", pairs_text(by_network));
    out.push_back(fact("peer access", text, peer_remedy(t.set_by_environment)));
  } else if (!peers.empty()) {
    out.push_back(fact("peer access", fmt::format("{}: {} pairs of ranks of a host reach each other's memory",
                                                  name, peers.size())));
  }
  if (!sockets.empty())
    out.push_back(fact("transport",
                       fmt::format("{}: ranks {} exchange through sockets", name, pairs_text(sockets)),
                       "unset NCCL_IB_DISABLE, install the network's plugin and name its adapters with "
                       "NCCL_IB_HCA: without RDMA a fast network is a slow one"));
  else if (!staged.empty())
    out.push_back(
        fact("transport",
             fmt::format("{}: ranks {} exchange through RDMA, but by way of the host's memory", name,
                         pairs_text(staged)),
             "load nvidia_peermem (or dma-buf support) and put each adapter under the switch of its "
             "device: GPUDirect RDMA was not taken"));
  else if (!direct.empty())
    out.push_back(fact("transport", fmt::format("{}: {} pairs of ranks between hosts by GPUDirect RDMA", name,
                                                direct.size())));
  const bool across = !sockets.empty() || !staged.empty() || !direct.empty();
  if (across && t.peer_channels == 1)
    out.push_back(
        fact("channels", fmt::format("{}: one channel to each peer on another host", name),
             "two fall to one from five hosts on, which halves send and receive: compare `ingot bench "
             "comm` with NCCL_NCHANNELS_PER_NET_PEER=2, and keep it only if all-to-all is no slower"));
  else if (across && t.peer_channels > 1)
    out.push_back(fact("channels", fmt::format("{}: {} channels to each peer", name, t.peer_channels)));
}

std::string without_colours(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    plain += text[i];
  }
  return plain;
}

/// What `nvidia-smi topo -p2p` calls pairs; other words are of another matrix.
constexpr std::pair<std::string_view, std::string_view> kPeerWords[] = {
    {"OK", ""},
    {"CNS", "the chipset does not support it"},
    {"GNS", "a device does not support it"},
    {"TNS", "the topology does not support it"},
    {"DR", "the driver's settings switch it off"},
    {"NS", "it is not supported"},
    {"U", "unknown"}};

/// The rows of a matrix of peer access: "GPU0  X  OK  CNS"; the first line with several devices names the
/// columns.
bool judge_matrix(const std::string& name, std::string_view text, Findings& out) {
  std::istringstream lines(without_colours(text));
  std::vector<std::string> columns;
  std::map<std::string, std::set<std::pair<std::string, std::string>>> refused;  // by reason
  int pairs = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; words >> word;) row.push_back(word);
    if (row.empty() || !row[0].starts_with("GPU")) continue;
    if (columns.empty()) {
      if (row.size() > 1 && row[1].starts_with("GPU")) columns = row;
      continue;
    }
    for (size_t i = 1; i < row.size() && i <= columns.size(); ++i) {
      const auto* word = std::find_if(std::begin(kPeerWords), std::end(kPeerWords),
                                      [&](const auto& known) { return known.first == row[i]; });
      if (word == std::end(kPeerWords)) continue;
      ++pairs;
      if (!word->second.empty())
        refused[std::string(word->second)].insert(std::minmax(row[0], columns[i - 1]));
    }
  }
  if (pairs == 0) return false;
  if (refused.empty()) {
    out.push_back(fact("peer access", fmt::format("{}: all devices reach each other's memory", name)));
    return true;
  }
  std::string what;
  for (const auto& [reason, some] : refused) {
    const auto& [one, other] = *some.begin();
    what += fmt::format("{}{} with {}{}: {}", what.empty() ? "" : "; ", one, other,
                        some.size() > 1 ? fmt::format(" and {} more", some.size() - 1) : "", reason);
  }
  out.push_back(
      fact("peer access", fmt::format("{}: not between {}", name, what),
           "switch off access control of PCIe bridges (ACS) and the IOMMU's translation in the firmware "
           "(iommu=pt), or ask the provider: exchanges go through the host's memory"));
  return true;
}

}  // namespace

std::vector<Finding> findings_of_log(const std::string& name, std::string_view text) {
  Findings found;
  const Transport t = read_transport(text);
  if (t.any)
    judge_transport(name, t, found);
  else if (judge_matrix(name, text, found))
    return found;
  if (found.empty())
    found.push_back(fact("peer access", fmt::format("{}: says nothing about transports", name),
                         "give the output of a run with NCCL_DEBUG=INFO, or of `nvidia-smi topo -p2p r`"));
  return found;
}

}  // namespace ingot::doctor
