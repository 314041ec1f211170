// See doctor_parts.h: accelerators, network adapters and drives in the device tree, and what the environment
// switches off between them.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file_system.h"
#include "measure/doctor_log.h"
#include "measure/doctor_parts.h"

namespace ingot::doctor {
namespace {

enum class PciKind { accelerator, network, drive };

struct PciDevice {
  std::string address, speed;
  PciKind kind = PciKind::accelerator;
  int width = 0, full_width = 0, node = -1;
  bool rdma = false;
};

const char* name_of_kind(PciKind kind) {
  return kind == PciKind::accelerator ? "accelerator" : kind == PciKind::network ? "adapter" : "drive";
}

/// "0x030200": a 3D controller. VGA controllers are left out: servers have one for their console.
bool kind_of_class(const std::string& text, const std::string& vendor, PciKind& kind) {
  const std::string code = text.substr(0, 6);
  const bool amd_display = code == "0x0380" && vendor == "0x1002";
  if (code == "0x0302" || code == "0x1200" || amd_display)
    kind = PciKind::accelerator;
  else if (code == "0x0200" || code == "0x0207")
    kind = PciKind::network;
  else if (code == "0x0108")
    kind = PciKind::drive;
  else
    return false;
  return true;
}

std::vector<PciDevice> pci_devices(const std::string& root) {
  std::vector<PciDevice> devices;
  std::error_code failed;
  const std::filesystem::path folder = root + "/sys/bus/pci/devices";
  std::vector<std::string> addresses;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end;
       at.increment(failed))
    addresses.push_back(at->path().filename().string());
  std::sort(addresses.begin(), addresses.end());
  for (const std::string& address : addresses) {
    const auto entry = [&](const char* name) {
      return line_of(root, "/sys/bus/pci/devices/" + address + "/" + name);
    };
    PciDevice d;
    if (!kind_of_class(entry("class"), entry("vendor"), d.kind)) continue;
    d.address = address, d.speed = entry("current_link_speed");
    d.width = std::atoi(entry("current_link_width").c_str());
    d.full_width = std::atoi(entry("max_link_width").c_str());
    const std::string node = entry("numa_node");
    d.node = node.empty() ? -1 : std::atoi(node.c_str());
    d.rdma = entry("class").starts_with("0x0207") ||
             std::filesystem::exists(folder / address / "infiniband", failed);
    devices.push_back(std::move(d));
  }
  return devices;
}

/// "x8 of x16", for each device whose link has fewer lanes than both ends could.
void link_widths(const std::vector<PciDevice>& devices, Findings& out) {
  std::string narrow;
  int known = 0;
  for (const PciDevice& d : devices) {
    constexpr int kMostLanes = 32;  // virtual functions say 0 or 255
    if (d.width < 1 || d.full_width < 1 || std::max(d.width, d.full_width) > kMostLanes) continue;
    ++known;
    if (d.width >= d.full_width) continue;
    narrow += fmt::format("{}{} {} has x{} of x{}{}", narrow.empty() ? "" : ", ", name_of_kind(d.kind),
                          d.address, d.width, d.full_width, d.speed.empty() ? "" : " at " + d.speed);
  }
  if (known == 0) return;
  if (narrow.empty())
    out.push_back(fact("link width", fmt::format("all lanes of {} devices", known)));
  else
    out.push_back(
        fact("link width", narrow,
             "seat it anew or move it to a slot with all lanes, and look for a riser or switch that "
             "halves them: copies between host and device lose the same share"));
}

/// Distance between memory domains, 10 within one; 0: not known.
int distance(const std::string& root, int from, int to) {
  std::istringstream words(line_of(root, fmt::format("/sys/devices/system/node/node{}/distance", from)));
  int value = 0;
  for (int i = 0; i <= to; ++i)
    if (!(words >> value)) return 0;
  return value;
}

void placement(const std::string& root, const std::vector<PciDevice>& devices, Findings& out) {
  const std::string online = line_of(root, "/sys/devices/system/node/online");
  if (online.empty() || online == "0") return;
  std::vector<const PciDevice*> accelerators, adapters;
  const bool rdma = std::any_of(devices.begin(), devices.end(),
                                [](const auto& d) { return d.kind == PciKind::network && d.rdma; });
  for (const PciDevice& d : devices) {
    if (d.kind == PciKind::accelerator) accelerators.push_back(&d);
    if (d.kind == PciKind::network && d.rdma == rdma) adapters.push_back(&d);
  }
  if (accelerators.empty() || adapters.empty()) return;
  const auto unknown = [](const PciDevice* d) { return d->node < 0; };
  if (std::any_of(accelerators.begin(), accelerators.end(), unknown) ||
      std::all_of(adapters.begin(), adapters.end(), unknown))
    return out.push_back(fact(
        "adapter placement",
        fmt::format("memory domains {}, but devices do not say on which they are", online),
        "a container or virtual machine hides the topology: mount the host's /sys, or give the collective "
        "library a topology file"));
  std::string far;
  std::set<std::pair<int, int>> seen;
  for (const PciDevice* a : accelerators) {
    const PciDevice* nearest = nullptr;
    int least = 0;
    for (const PciDevice* n : adapters) {
      if (n->node < 0) continue;
      const int d = n->node == a->node ? 10 : std::max(11, distance(root, a->node, n->node));
      if (nearest == nullptr || d < least) nearest = n, least = d;
    }
    if (nearest == nullptr || nearest->node == a->node) continue;
    far += fmt::format("{}accelerator {} is on domain {}, its nearest adapter {} on {}{}",
                       far.empty() ? "" : ", ", a->address, a->node, nearest->address, nearest->node,
                       least > 11 ? fmt::format(" (distance {})", least) : "");
  }
  if (far.empty())
    out.push_back(
        fact("adapter placement",
             fmt::format("{} accelerators have an adapter on their memory domain", accelerators.size())));
  else
    out.push_back(
        fact("adapter placement", far,
             "move the adapter to a slot of that socket, or bind the ranks of that socket to others: "
             "every message crosses the link between the sockets"));
}

/// Variables of this process: "NAME=value".
std::vector<std::string> environment(const std::string& root) {
  std::ifstream file(root + "/proc/self/environ", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> all;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(std::string_view("\0\n", 2), at), text.size());
    if (end > at) all.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

void switched_off(const std::string& root, Findings& out) {
  struct Flag {
    const char* variable;
    const char* topic;
    const char* effect;
  };
  static constexpr Flag kFlags[] = {
      {"NCCL_P2P_DISABLE", "peer access", "devices of a host exchange through its memory"},
      {"NCCL_IB_DISABLE", "transport", "hosts exchange through sockets"},
      {"NCCL_SHM_DISABLE", "transport", "ranks of a host without peer access exchange through the network"}};
  for (const std::string& variable : environment(root))
    for (const Flag& f : kFlags) {
      const size_t equal = variable.find('=');
      if (variable.substr(0, equal) != f.variable || equal == std::string::npos) continue;
      const std::string value = variable.substr(equal + 1);
      if (value.empty() || value == "0") continue;
      out.push_back(fact(f.topic, fmt::format("{} is set: {}", variable, f.effect),
                         fmt::format("unset {}", f.variable)));
    }
}

}  // namespace

void examine_devices(const DoctorOptions& o, Findings& out) {
  const std::vector<PciDevice> devices = pci_devices(o.root);
  link_widths(devices, out);
  placement(o.root, devices, out);
  if (has_accelerators(o)) switched_off(o.root, out);
  for (const std::string& path : o.logs)
    for (Finding& f : findings_of_log(path, real_file_system().read(path))) out.push_back(std::move(f));
}

bool has_accelerators(const DoctorOptions& o) {
  const std::vector<PciDevice> devices = pci_devices(o.root);
  return std::any_of(devices.begin(), devices.end(),
                     [](const auto& d) { return d.kind == PciKind::accelerator; });
}

}  // namespace ingot::doctor
