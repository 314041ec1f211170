// See control_group.h.
#include "base/control_group.h"

#include <fstream>
#include <sstream>

namespace ingot {
namespace {

constexpr double kNoLimit = 1e18;  // version 1 writes the largest multiple of a page for "none"

/// The numbers in a file; "max" and an absent file give none.
double number_in(const std::string& path, int index = 0) {
  std::ifstream file(path);
  double number = -1;
  for (int i = 0; i <= index; ++i)
    if (!(file >> number)) return -1;
  return number;
}

/// Keeps the tightest limits of a group and its parents. `base` is where the hierarchy is mounted, `group` is
/// the path below it ("/a/b").
template <class Look>
void for_each_level(const std::string& base, std::string group, Look&& look) {
  for (;;) {
    look(base + group);
    if (group.empty() || group == "/") return;
    group.resize(group.rfind('/'));
  }
}

void take_cores(ControlGroup& limits, double quota, double period) {
  if (quota <= 0 || period <= 0) return;
  if (limits.cores == 0 || quota / period < limits.cores) limits.cores = quota / period;
}

void take_memory(ControlGroup& limits, double bytes, double used) {
  if (bytes <= 0 || bytes >= kNoLimit) return;
  if (limits.memory_bytes > 0 && bytes >= static_cast<double>(limits.memory_bytes)) return;
  limits.memory_bytes = static_cast<int64_t>(bytes);
  limits.used_bytes = used > 0 ? static_cast<int64_t>(used) : 0;
}

}  // namespace

ControlGroup control_group(const std::string& root) {
  ControlGroup limits;
  const std::string mount = root + (root.ends_with('/') ? "" : "/") + "sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/a/b", or "4:cpu,cpuacct:/a/b" of version 1
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string group = line.substr(second + 1);
    std::istringstream controllers(line.substr(first + 1, second - first - 1));
    if (second == first + 1)
      for_each_level(mount, group, [&](const std::string& at) {
        take_cores(limits, number_in(at + "/cpu.max"), number_in(at + "/cpu.max", 1));
        take_memory(limits, number_in(at + "/memory.max"), number_in(at + "/memory.current"));
      });
    for (std::string name; std::getline(controllers, name, ',');) {
      if (name == "cpu")
        for_each_level(mount + "/cpu", group, [&](const std::string& at) {
          take_cores(limits, number_in(at + "/cpu.cfs_quota_us"), number_in(at + "/cpu.cfs_period_us"));
        });
      if (name == "memory")
        for_each_level(mount + "/memory", group, [&](const std::string& at) {
          take_memory(limits, number_in(at + "/memory.limit_in_bytes"),
                      number_in(at + "/memory.usage_in_bytes"));
        });
    }
  }
  return limits;
}

}  // namespace ingot
