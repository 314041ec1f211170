// See cores.h.
#include "comm/cores.h"

#include <sched.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace ingot {

std::vector<int> parse_cores(const std::string& text, const std::string& where) {
  std::vector<int> cores;
  const char *at = text.data(), *const end = at + text.size();
  const auto number = [&] {
    int n = -1;
    const auto [next, error] = std::from_chars(at, end, n);
    if (error != std::errc() || n < 0 || n >= CPU_SETSIZE)
      throw Error(fmt::format("{}: '{}' is not a list of cores", where, text), "write it as 0-3,8");
    at = next;
    return n;
  };
  for (;; ++at) {
    const int first = number();
    int last = first;
    if (at != end && *at == '-') ++at, last = number();
    for (int core = first; core <= last; ++core) cores.push_back(core);
    if (at == end && last >= first) return cores;
    if (at == end || *at != ',' || last < first)
      throw Error(fmt::format("{}: '{}' is not a list of cores", where, text), "write it as 0-3,8");
  }
}

std::string cores_text(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (last > i) text += fmt::format("-{}", cores[last]);
    i = last + 1;
  }
  return text;
}

void bind_to_cores(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0 || sched_getaffinity(0, sizeof set, &set) != 0 ||
      CPU_COUNT(&set) != static_cast<int>(cores.size()))
    throw Error(fmt::format("cannot bind to the cores {}: this machine or job has not all of them ({})",
                            cores_text(cores), std::strerror(errno)),
                "correct the cores that INGOT_CORES or the topology names");
}

}  // namespace ingot
